"""The launcher's end of its connection to the client; never waits."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec

from squall.functions.local import wire

_READ_BYTES = 1 << 18
_decode = msgspec.msgpack.Decoder(wire.Prepare | wire.Invoke | wire.Cancel).decode


class ClientLink:
    """Messages in and out.

    Parameters
    ----------
    channel : socket
        Connection to the client.

    Attributes
    ----------
    closed : bool
        The client is gone, or wants the launcher to be.
    unsent : int
        Bytes that the client has yet to make room for.
    """

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._frames = wire.Frames()
        self._out = bytearray()
        self.closed = False

    def fileno(self) -> int:
        """Its descriptor, for a selector."""
        return self._channel.fileno()

    @property
    def unsent(self) -> int:
        """Bytes that the client has yet to make room for."""
        return len(self._out)

    def send(self, message: wire.Message) -> None:
        """Queue a message; it leaves with the next `flush`."""
        self._out += wire.frame(message)

    def flush(self) -> None:
        """Send what the client can take now."""
        if not self._out:
            return
        try:
            sent = self._channel.send(self._out)
        except BlockingIOError:
            return
        except OSError:  # it was killed
            self.closed = True
            return
        del self._out[:sent]

    def receive(self) -> Iterator[wire.Prepare | wire.Invoke | wire.Cancel]:
        """What has arrived."""
        try:
            data = self._channel.recv(_READ_BYTES)
        except BlockingIOError:  # the selector reported that there is room to send
            return
        except OSError:
            data = b""
        if not data:
            self.closed = True
        for body in self._frames.feed(data):
            yield _decode(body)
