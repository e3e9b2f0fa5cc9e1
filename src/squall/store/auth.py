"""How the two ends of a TCP connection show each other that they know the store's token.

The server makes one random token, which reaches its clients on other ways (the owner by the
Unix socket, workers inside the event that starts them) and never crosses the connection::

    client → Hello(version)                     server → Challenge(version, nonce)
    client → Proof(nonce, HMAC as client)       server → Welcome(version, HMAC as server)

Both MACs cover both nonces and the version, so nothing that was recorded can be used again;
they differ by the sender's role, so neither side can be made to answer its own challenge.
This keeps strangers out; it neither hides nor seals what follows.  TLS does, and there the MACs
also cover the certificate: who sits in between has another one, so the token vouches for it and
no authority is needed (as the ``tls-server-end-point`` binding of RFC 5929 does).
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from squall.errors import SettingError, StoreError
from squall.store import wire

NONCE_BYTES = 32

_NOBODY = wire.ServerInfo()


class WrongTokenError(StoreError):
    """The other end does not know the token."""


def new_token() -> str:
    """A token of 256 random bits."""
    return os.urandom(32).hex()


def store_token(path: Path | None = None) -> str | None:
    """The token of a store that was started apart; None if none is given.

    From the file ``path``, else ``SQUALL_STORE_TOKEN``, else the file ``SQUALL_STORE_TOKEN_FILE``.

    Raises
    ------
    SettingError
        If the file cannot be read or is empty.
    """
    if path is None and (token := os.environ.get("SQUALL_STORE_TOKEN")):
        return token
    named = path or os.environ.get("SQUALL_STORE_TOKEN_FILE")
    if not named:
        return None
    try:
        token = Path(named).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"the token cannot be read: {error}", where=str(named)) from error
    if not token:
        raise SettingError("it is empty", where=str(named), fix="put a long random line into it")
    return token


def new_nonce() -> bytes:
    """Bytes that were never used before."""
    return os.urandom(NONCE_BYTES)


def proof(token: str, role: str, server_nonce: bytes, client_nonce: bytes, certificate: bytes) -> bytes:
    """What shows that ``role`` (``"client"`` or ``"server"``) knows the token, this time."""
    message = f"squall store {wire.VERSION} {role}:".encode() + server_nonce + client_nonce + certificate
    return hmac.digest(token.encode(), message, hashlib.sha256)


class Door:
    """The server's side of one greeting, without I/O.

    Parameters
    ----------
    token : str, optional
        What clients must know; None where they need to know nothing.
    server : ServerInfo
        What they are told once they have shown that.
    certificate : bytes
        SHA-256 of the certificate that the server shows, if the connection is by TLS.
    """

    def __init__(
        self, token: str | None, server: wire.ServerInfo = _NOBODY, certificate: bytes = b""
    ) -> None:
        self._token, self._server, self._certificate = token, server, certificate
        self._nonce = b""
        self.open = False

    def answer(self, request: wire.Request) -> wire.Reply:
        """The reply to the next frame of the greeting.

        Raises
        ------
        MalformedFrameError
            If the frame is not the one that is due.
        WrongTokenError
            If the client does not know the token.
        """
        if self._nonce:
            return self._check(request)
        if not isinstance(request, wire.Hello):
            raise wire.MalformedFrameError(f"the first frame is a {type(request).__name__}, not a Hello")
        if self._token is None:
            self.open = request.version == wire.VERSION
            return wire.Welcome(wire.VERSION, server=self._server)
        self._nonce = new_nonce()
        return wire.Challenge(wire.VERSION, self._nonce)

    def _check(self, request: wire.Request) -> wire.Reply:
        if not isinstance(request, wire.Proof) or len(request.nonce) != NONCE_BYTES:
            raise wire.MalformedFrameError(f"a {type(request).__name__} came where a Proof was due")
        assert self._token is not None
        expected = proof(self._token, "client", self._nonce, request.nonce, self._certificate)
        if not hmac.compare_digest(expected, request.proof):
            raise WrongTokenError("the client does not know this store's token")
        self.open = True
        mine = proof(self._token, "server", self._nonce, request.nonce, self._certificate)
        return wire.Welcome(wire.VERSION, mine, self._server)


def prove(token: str, challenge: wire.Challenge, certificate: bytes = b"") -> tuple[wire.Proof, bytes]:
    """A client's answer to a challenge, and the proof that the server must return."""
    nonce = new_nonce()
    mine = proof(token, "client", challenge.nonce, nonce, certificate)
    return wire.Proof(nonce, mine), proof(token, "server", challenge.nonce, nonce, certificate)


def check_server(expected: bytes, welcome: wire.Welcome) -> None:
    """Raise `WrongTokenError` unless the server has shown that it knows the token."""
    if not hmac.compare_digest(expected, welcome.proof):
        raise WrongTokenError("the server does not know this store's token")
