"""Fuzzing of all C++ that outside bytes reach, under sanitizers: ``make fuzz``, or ``python -m tests.fuzz``.

A *target* is a function of one random generator: it makes an input, gives it to the code, and raises if what
comes back is wrong.  Each iteration has a seed of its own, so that a finding is played again by its number.
"""
