"""Certificate and key of a node in one file, as upstream's file store keeps them, and what is asked of the signer API.

`FOLDER/PREFIX-current.pem` is a link to the newest `PREFIX-<time>.pem`; every file is 0600 and on the disk before
the link moves (client-go util/certificate/certificate_store.go).
"""

from __future__ import annotations

import contextlib
import glob
import os
import time
from collections.abc import AsyncGenerator

from agent.certificates.model import KeyAndRequest, Leaf, Pair, Template
from nodelib.errors import Permanent
from nodelib.kube.client import ApiError, Json, KubeClient

_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_KEPT = 3  # older files of a store go away with each new one


class CertificateStore:
    """The pairs of one purpose in a folder. Blocking: small files."""

    def __init__(self, folder: str, prefix: str) -> None:
        self.folder, self.prefix = folder, prefix

    @property
    def path(self) -> str:
        """The link to the newest pair; it may not be there yet."""
        return os.path.join(self.folder, f"{self.prefix}-current.pem")

    def current(self) -> Pair | None:
        """None when there is none yet. Raises Invalid for a file that holds no certificate with its key."""
        from agent.certificates.edge import node_pems

        try:
            with open(self.path, "rb") as file:
                pem = file.read()
                since = os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None
        return Pair(self.path, node_pems.checked(pem, self.path), since)

    def update(self, chain: bytes, key: bytes) -> Pair:
        """Keep a new pair and make it the current one. Raises Invalid (no pair), Permanent (disk)."""
        from agent.certificates.edge import node_pems

        pem = node_pems.joined(chain, key, self.path)
        name = f"{self.prefix}-{time.strftime('%Y-%m-%d-%H-%M-%S')}-{os.urandom(2).hex()}.pem"
        path = os.path.join(self.folder, name)
        leaf = node_pems.checked(pem, path)
        try:
            os.makedirs(self.folder, mode=0o750, exist_ok=True)
            _write_private(path, pem)
            _point(self.path, path)
            self._prune(path)
        except OSError as error:
            raise Permanent(
                str(error), obj=path, step="keep the certificate", action="Make room, or make the folder writable."
            ) from error
        return Pair(self.path, leaf, time.time())

    def _prune(self, newest: str) -> None:
        older = sorted(glob.glob(os.path.join(self.folder, f"{self.prefix}-[0-9]*.pem")), key=os.path.getmtime)
        for path in older[: -_KEPT - 1]:
            if path != newest:
                os.unlink(path)


class KeyFile:
    """A key that waits for its first certificate, kept so that a restart goes on with the same request."""

    def __init__(self, path: str) -> None:
        self.path = path

    def get(self) -> bytes:
        """The key in PEM, made when there is none. Raises OSError."""
        from agent.certificates.edge import node_pems

        try:
            with open(self.path, "rb") as file:
                pem = file.read()
        except OSError:
            pem = b""
        if not node_pems.key_is_good(pem):
            pem = node_pems.new_key()
            os.makedirs(os.path.dirname(self.path), mode=0o750, exist_ok=True)
            _write_private(self.path, pem)
        return pem

    def forget(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


class SigningRequests:
    """CertificateSigningRequests of the API server that `client` speaks with."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def create(self, body: Json) -> str:
        """Its name; one of that name that is there already is as good. Raises ApiError, ApiUnreachable."""
        try:
            return str((await self._client.post(_REQUESTS, body))["metadata"]["name"])
        except ApiError as error:
            if error.is_already_exists:
                return str(body["metadata"]["name"])
            raise

    async def follow(self, name: str) -> AsyncGenerator[Json, None]:
        """The request now and after each change, until the server ends the watch. Raises ApiError, ApiUnreachable."""
        found = await self._client.get(f"{_REQUESTS}/{name}")
        yield found
        version = str(found["metadata"].get("resourceVersion", ""))
        params = {"fieldSelector": f"metadata.name={name}", "resourceVersion": version}
        async for event in self._client.stream(_REQUESTS, params):
            if event["type"] == "DELETED":
                raise ApiError(404, "NotFound", "it was deleted", obj=f"CertificateSigningRequest {name}")
            if event["type"] != "BOOKMARK":
                yield event["object"]


def make_request(wanted: Template, key_pem: bytes = b"") -> KeyAndRequest:
    """A request for `wanted`, signed by `key_pem` or by a new ECDSA P-256 key."""
    from agent.certificates.edge import node_pems

    return node_pems.make_request(wanted, key_pem)


def public_key(key_pem: bytes) -> bytes:
    """The public half in DER."""
    from agent.certificates.edge import node_pems

    return node_pems.public_key(key_pem)


def read_leaf(pem: bytes) -> Leaf:
    """What the first certificate says. Raises ValueError."""
    from agent.certificates.edge import node_pems

    return node_pems.read_leaf(pem)


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
