"""The fast store: tables of parameters, blobs, and control of a job's workers.

A server process owns the memory (:mod:`squall.store.process` starts it).  Clients on the
same host map it (:func:`squall.store.embedded.connect`) or, like those elsewhere, send
requests over TCP (:func:`squall.store.tcp.connect`); :func:`squall.store.connect` chooses by
the address.  The rules live in cores without I/O (:mod:`~squall.store.table`,
:mod:`~squall.store.control`, :mod:`~squall.store.blobs`), which any other transport and the
simulator use as they are.
"""

from squall.protocols import Store
from squall.store.opening import StoreAddress, connect, requests_of

__all__ = ["Store", "StoreAddress", "connect", "requests_of"]
