"""Keys and their proofs, and requests on the wire."""

from __future__ import annotations

import asyncio

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from agent.volumes.edge.pod_certificates import PodCertificateRequests
from agent.volumes.edge.pod_keys import make_key
from nodelib.clock import SystemClock
from nodelib.errors import Invalid
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import ApiError, KubeClient
from nodelib.tasks import cancel_and_wait
from tests.fakes.pod_api import FakePodApi


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("RSA3072", (3072, "sha256")),
        ("RSA4096", (4096, "sha256")),
        ("ECDSAP256", ("secp256r1", "sha256")),
        ("ECDSAP384", ("secp384r1", "sha384")),
        ("ECDSAP521", ("secp521r1", "sha512")),
        ("ED25519", ("ed25519", "")),
    ],
)
def test_keys(kind: str, expected: tuple[object, str]) -> None:
    pem, proof = make_key(kind)
    assert pem.startswith(b"-----BEGIN PRIVATE KEY-----\n")
    key = serialization.load_pem_private_key(pem, None)
    request = x509.load_der_x509_csr(proof)
    assert request.is_signature_valid
    assert request.public_key() == key.public_key()
    assert list(request.subject) == []
    assert list(request.extensions) == []
    digest = request.signature_hash_algorithm
    match key:
        case rsa.RSAPrivateKey():
            found: object = key.key_size
        case ec.EllipticCurvePrivateKey():
            found = key.curve.name
        case _:
            assert isinstance(key, ed25519.Ed25519PrivateKey)
            found = "ed25519"
    assert (found, digest.name if digest else "") == expected


async def test_an_unknown_kind() -> None:
    with pytest.raises(Invalid, match="unknown key type 'RSA1024'"):
        make_key("RSA1024")


async def test_the_namespaces_take_turns() -> None:
    """One that wants thousands of keys, each of which takes a second, does not keep another from its first."""
    access = ClusterAccess(server="http://127.0.0.1:1")
    async with KubeClient(access, user_agent="test") as client:
        requests = PodCertificateRequests(client, "n1")
        many = [asyncio.create_task(requests.key("RSA3072", "many")) for _ in range(40)]
        await asyncio.sleep(0)
        await requests.key("ECDSAP256", "one")
        assert sum(task.done() for task in many) <= 1
        await cancel_and_wait(*many)
        await requests.key("ED25519", "many")


async def test_requests_are_made_and_followed() -> None:
    api = FakePodApi(SystemClock())
    async with api:
        client = KubeClient(ClusterAccess(server=api.url), user_agent="test")
        requests = PodCertificateRequests(client, "n1")
        seen: asyncio.Queue[tuple[str, str, bool]] = asyncio.Queue()
        requests.follow(lambda namespace, name, gone: seen.put_nowait((namespace, name, gone)))
        tasks = [asyncio.create_task(work(), name=name) for name, work in requests.tasks()]
        try:
            account = "/api/v1/namespaces/shop/serviceaccounts/default"
            await api.put(account, {"metadata": {"name": "default", "namespace": "shop", "uid": "u1"}})
            assert await requests.account_uid("shop", "default") == "u1"
            with pytest.raises(ApiError):
                await requests.account_uid("shop", "gone")
            assert not [path for _, path in api.requests if "podcertificaterequests" in path]
            name = await requests.create(
                {"metadata": {"generateName": "req-", "namespace": "shop"}, "spec": {"nodeName": "n1"}}
            )
            assert await asyncio.wait_for(seen.get(), 10) == ("shop", name, False)
            found = requests.find("shop", name)
            assert found is not None and "status" not in found
            await api.answer_certificate(name, {"conditions": []})
            assert await asyncio.wait_for(seen.get(), 10) == ("shop", name, False)
            found = requests.find("shop", name)
            assert found is not None and found["status"] == {"conditions": []}
            await api.remove(f"{api.certificate_requests}/{name}")
            assert await asyncio.wait_for(seen.get(), 10) == ("shop", name, True)
            assert requests.find("shop", name) is None
            watched = [path for method, path in api.requests if method == "GET" and "podcertificaterequests" in path]
            assert watched and all("fieldSelector=spec.nodeName%3Dn1" in path for path in watched)
        finally:
            await cancel_and_wait(*tasks)
            await client.close()
