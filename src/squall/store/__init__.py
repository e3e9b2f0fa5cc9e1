"""The fast store: tables of parameters, blobs, and control of a job's workers.

One host is served by the *embedded* store: a server process that owns the memory
(:mod:`squall.store.process` starts it) and clients that map it
(:func:`squall.store.embedded.connect`).  The rules live in cores without I/O
(:mod:`~squall.store.table`, :mod:`~squall.store.control`, :mod:`~squall.store.blobs`), which
any other transport and the simulator use as they are.
"""
