"""Certificate and key of a node in one file, as upstream's file store keeps them.

`FOLDER/PREFIX-current.pem` is a link to the newest `PREFIX-<time>.pem`. Every file has mode 0600 and is synced to disk
before the link changes (client-go util/certificate/certificate_store.go). pem.py is imported where it is needed,
because the library behind it takes 8 MB of memory.
"""

from __future__ import annotations

import contextlib
import glob
import os
import time

from agent.certificates.model import KeyAndRequest, Leaf, Pair, Template
from nodelib.errors import Permanent

_KEPT = 3  # older files that remain when a new one is stored


class CertificateStore:
    """The certificates of one purpose with their keys, in a folder. Blocking."""

    def __init__(self, folder: str, prefix: str) -> None:
        self.folder, self.prefix = folder, prefix

    @property
    def path(self) -> str:
        """The link to the newest pair, which may not exist yet."""
        return os.path.join(self.folder, f"{self.prefix}-current.pem")

    def current(self) -> Pair | None:
        """The newest pair, None when there is none yet. Raises Invalid for a file without a certificate and its key."""
        from agent.certificates.edge import pem as pems

        try:
            with open(self.path, "rb") as file:
                pem = file.read()
                since = os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None
        return Pair(self.path, pems.checked(pem, self.path), since)

    def update(self, chain: bytes, key: bytes) -> Pair:
        """Store a new pair and make it the current one. Raises Invalid (not a pair), Permanent (disk)."""
        from agent.certificates.edge import pem as pems

        pem = pems.joined(chain, key, self.path)
        name = f"{self.prefix}-{time.strftime('%Y-%m-%d-%H-%M-%S')}-{os.urandom(2).hex()}.pem"
        path = os.path.join(self.folder, name)
        leaf = pems.checked(pem, path)
        try:
            os.makedirs(self.folder, mode=0o750, exist_ok=True)
            _write_private(path, pem)
            _point(self.path, path)
            self._prune(path)
        except OSError as error:
            raise Permanent(
                str(error), obj=path, step="store the certificate", action="Make room, or make the folder writable."
            ) from error
        return Pair(self.path, leaf, time.time())

    def _prune(self, newest: str) -> None:
        older = sorted(glob.glob(os.path.join(self.folder, f"{self.prefix}-[0-9]*.pem")), key=os.path.getmtime)
        for path in older[: -_KEPT - 1]:
            if path != newest:
                os.unlink(path)


class KeyFile:
    """The key of a first certificate, on disk so that a restarted agent continues with the same request."""

    def __init__(self, path: str) -> None:
        self.path = path

    def get(self) -> bytes:
        """The key in PEM, created when there is none. Raises OSError."""
        from agent.certificates.edge import pem as pems

        try:
            with open(self.path, "rb") as file:
                pem = file.read()
        except OSError:
            pem = b""
        if not pems.is_private_key(pem):
            pem = pems.new_key()
            os.makedirs(os.path.dirname(self.path), mode=0o750, exist_ok=True)
            _write_private(self.path, pem)
        return pem

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def make_request(wanted: Template, key_pem: bytes = b"") -> KeyAndRequest:
    """A request for `wanted`, signed with `key_pem` or with a new ECDSA P-256 key."""
    from agent.certificates.edge import pem as pems

    return pems.make_request(wanted, key_pem)


def public_key(key_pem: bytes) -> bytes:
    """The public key in DER."""
    from agent.certificates.edge import pem as pems

    return pems.public_key(key_pem)


def read_leaf(pem: bytes) -> Leaf:
    """The contents of the first certificate. Raises ValueError."""
    from agent.certificates.edge import pem as pems

    return pems.read_leaf(pem)


def _write_private(path: str, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, 0o600)
        file.write(data)
        file.flush()
        os.fsync(handle)


def _point(link: str, target: str) -> None:
    staged = f"{link}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(staged)
    os.symlink(os.path.abspath(target), staged)
    os.replace(staged, link)
