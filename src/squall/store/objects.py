"""A store that is an object store: blobs, reductions and control by polling, but no tables.

All that is relied on is that an object is put whole, is seen by everybody from then on, and that
of several who create one, one succeeds (a local folder cannot do more).  Everything costs requests,
which the object store counts.
"""

from __future__ import annotations

from squall.protocols import Objects, Tables
from squall.registry import OBJECTS
from squall.store.closing import Closing
from squall.store.connection import Patience
from squall.store.object_blobs import ObjectBlobs
from squall.store.object_control import ObjectControl
from squall.store.opening import no_tables


def connect(address: str, token: str = "", patience: Patience | None = None) -> ObjectsStore:
    """The store below ``"file:///folder"`` or ``"s3://bucket/prefix"``; nothing is asked of it yet.

    Credentials come from the environment, so ``token`` and ``patience`` are of no use here.

    Raises
    ------
    SettingError
        If the address is not of this form.
    """
    return ObjectsStore(OBJECTS.load("default")(address))


class ObjectsStore(Closing):
    """One process's view of the store; it belongs to the thread that made it.

    Parameters
    ----------
    objects : Objects
        Where everything is, below ``jobs/<job>/store`` and ``store``.

    Attributes
    ----------
    objects : Objects
        Counts the requests, which cost money.
    blobs : ObjectBlobs
        Implements :class:`squall.protocols.Blobs` and :class:`squall.protocols.Reductions`.
    control : ObjectControl
        Implements :class:`squall.protocols.Control`.
    """

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.blobs = ObjectBlobs(objects)
        self.control = ObjectControl(objects)

    @property
    def tables(self) -> Tables:
        """There are none; raises `StoreError`."""
        raise no_tables(self.address)

    @property
    def address(self) -> str:
        """Where it is."""
        return self.objects.url

    def close(self) -> None:
        """Give idle connections back; idempotent."""
        self.objects.close()
