"""Peers that misuse TLS: messages that no application sees, without end, and groups that take long to work with.

OpenSSL itself plays them, by ctypes: Python's ssl can neither update keys on request nor choose groups.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import Iterator

_GROUPS = 92  # of SSL_CTX_ctrl
_PEM = 1


def library() -> ctypes.CDLL:
    found = ctypes.CDLL("libssl.so.3")
    for name in ("TLS_server_method", "TLS_client_method", "SSL_CTX_new", "SSL_new"):
        getattr(found, name).restype = ctypes.c_void_p
    return found


class Peer:
    """One end of TLS on a socket of its own, in a thread. `updates`: how often it changed its keys."""

    def __init__(self) -> None:
        self._ssl = library()
        self.updates = 0
        self._is_over = threading.Event()

    def flood(self, side: ctypes.c_void_p) -> None:
        while not self._is_over.is_set() and self._ssl.SSL_key_update(side, 0) == 1:
            if self._ssl.SSL_do_handshake(side) != 1:
                return
            self.updates += 1

    def new(self, context: ctypes.c_void_p, connection: socket.socket) -> ctypes.c_void_p:
        side = ctypes.c_void_p(self._ssl.SSL_new(context))
        self._ssl.SSL_set_fd(side, connection.fileno())
        return side

    def end(self) -> None:
        self._is_over.set()

    def client(self, port: int) -> None:
        """Connect, and flood. Returns when the other side has had enough."""
        context = ctypes.c_void_p(self._ssl.SSL_CTX_new(ctypes.c_void_p(self._ssl.TLS_client_method())))
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
            side = self.new(context, connection)
            if self._ssl.SSL_connect(side) == 1:
                self.flood(side)

    @contextlib.contextmanager
    def server(self, cert: str, key: str, *, groups: str = "") -> Iterator[int]:
        """A server that floods; its port."""
        context = ctypes.c_void_p(self._ssl.SSL_CTX_new(ctypes.c_void_p(self._ssl.TLS_server_method())))
        assert self._ssl.SSL_CTX_use_certificate_chain_file(context, cert.encode()) == 1
        assert self._ssl.SSL_CTX_use_PrivateKey_file(context, key.encode(), _PEM) == 1
        if groups:
            assert self._ssl.SSL_CTX_ctrl(context, _GROUPS, 0, groups.encode()) == 1
        listener = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=self._serve, args=(context, listener), daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        self.end()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        listener.close()

    def _serve(self, context: ctypes.c_void_p, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not self._is_over.is_set():
                connection, _ = listener.accept()
                connection.settimeout(None)
                with connection:
                    side = self.new(context, connection)
                    if self._ssl.SSL_accept(side) == 1:
                        self.flood(side)


def hello(groups: tuple[int, ...], shares: tuple[tuple[int, bytes], ...]) -> bytes:
    """The record of a ClientHello of TLS 1.3 that offers these groups, and these key shares."""

    def vector(size: int, content: bytes) -> bytes:
        return len(content).to_bytes(size) + content

    def extension(number: int, content: bytes) -> bytes:
        return number.to_bytes(2) + vector(2, content)

    extensions = (
        extension(43, vector(1, b"\x03\x04"))
        + extension(13, vector(2, bytes.fromhex("080404030401050308050501080606010807")))
        + extension(10, vector(2, b"".join(one.to_bytes(2) for one in groups)))
        + extension(51, vector(2, b"".join(number.to_bytes(2) + vector(2, key) for number, key in shares)))
    )
    body = b"\x03\x03" + os.urandom(32) + vector(1, b"") + vector(2, b"\x13\x01") + vector(1, b"\0")
    message = b"\x01" + vector(3, body + vector(2, extensions))
    return b"\x16\x03\x01" + vector(2, message)
