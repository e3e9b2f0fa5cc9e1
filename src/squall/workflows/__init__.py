"""Map-reduce: any function, for many items, on functions.

What is decided, without I/O, is in :mod:`squall.workflows.machine`; the thread that does it is in
:mod:`squall.workflows.job`.
"""
