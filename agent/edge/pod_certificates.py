"""PodCertificateRequests of this node, and the keys they are made with.

The Node authorizer lets a node list and watch requests by spec.nodeName only, and read a service
account that one of its pods runs as. Key types: GenerateKeyAndProof of pkg/kubelet/podcertificate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from agent.model.materials import Json
from nodelib.errors import Invalid
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector
from nodelib.tasks import Work

_GROUP = "/apis/certificates.k8s.io/v1"
_EXPONENT = 65537

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
_MAKERS: dict[str, Callable[[], PrivateKey]] = {
    "RSA3072": lambda: rsa.generate_private_key(_EXPONENT, 3072),
    "RSA4096": lambda: rsa.generate_private_key(_EXPONENT, 4096),
    "ECDSAP256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ECDSAP384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "ECDSAP521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "ED25519": ed25519.Ed25519PrivateKey.generate,
}
_HASHES: dict[str, hashes.HashAlgorithm] = {"ECDSAP384": hashes.SHA384(), "ECDSAP521": hashes.SHA512()}


class PodCertificateRequests:
    """`on_change(namespace, name, gone)` for every request of this node that changes; run() must be kept running."""

    def __init__(self, client: KubeClient, node: str) -> None:
        self._client = client
        self._wanted = asyncio.Event()
        self._on_change: Callable[[str, str, bool], None] = lambda namespace, name, gone: None
        # One key at a time: those of a node full of pods must not take all of its cores.
        self._making = asyncio.Lock()
        self._requests = Reflector(
            client,
            f"{_GROUP}/podcertificaterequests",
            name="pod certificate requests",
            params={"fieldSelector": f"spec.nodeName={node}"},
            on_change=self._changed,
        )

    def follow(self, on_change: Callable[[str, str, bool], None]) -> None:
        self._on_change = on_change

    async def run(self) -> None:
        """Nothing is watched before the first request is made."""
        await self._wanted.wait()
        await self._requests.run()

    async def key(self, kind: str) -> tuple[bytes, bytes]:
        """(PKCS #8 in PEM, an empty PKCS #10 request in DER that it has signed). Raises Invalid for an unknown kind.

        OpenSSL lets go of the interpreter meanwhile; an RSA key takes seconds on a busy node.
        """
        async with self._making:
            return await asyncio.to_thread(make_key, kind)

    async def account_uid(self, namespace: str, name: str) -> str:
        """UID of a service account. Raises ApiError or ApiUnreachable."""
        found = await self._client.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}")
        return str(found["metadata"]["uid"])

    async def create(self, request: Json) -> str:
        """Its name. Raises ApiError or ApiUnreachable."""
        self._wanted.set()
        path = f"{_GROUP}/namespaces/{request['metadata']['namespace']}/podcertificaterequests"
        return str((await self._client.post(path, request))["metadata"]["name"])

    def find(self, namespace: str, name: str) -> Json | None:
        """As last seen; None when it has not been seen yet, or is gone."""
        return self._requests.store.get((namespace, name))

    def _changed(self, kind: str, item: Json, old: Json | None) -> None:
        meta = item["metadata"]
        self._on_change(str(meta.get("namespace", "")), str(meta["name"]), kind == "DELETED")

    def tasks(self) -> list[tuple[str, Work]]:
        """(name, work) of the long-lived tasks."""
        return [("pod certificate requests", self.run)]


def make_key(kind: str) -> tuple[bytes, bytes]:
    """See PodCertificateRequests.key. Blocking."""
    maker = _MAKERS.get(kind)
    if maker is None:
        raise Invalid(f"unknown key type {kind!r}", step="private key", action=f"Use one of {', '.join(_MAKERS)}.")
    key = maker()
    # Ed25519 hashes by itself; the others sign as Go's crypto/x509 does by default.
    digest: Any = None if kind == "ED25519" else _HASHES.get(kind, hashes.SHA256())
    proof = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, digest)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem, proof.public_bytes(serialization.Encoding.DER)
