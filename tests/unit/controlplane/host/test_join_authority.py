"""Which certificates of cluster-info `join` believes: those that were pinned, and none that came along with them."""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import hmac
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from controlplane.host.model import Request
from controlplane.host.work.join import join
from nodelib.clock import SystemClock
from nodelib.errors import NodewrightError, Permanent
from tests.unit.controlplane.host.test_join_refused import Unseen

TOKEN = "abcdef.0123456789abcdef"
PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER


class Authority:
    """A certificate authority, and a server's certificate for 127.0.0.1 that it signed. `above`: who signed it, None:
    itself."""

    def __init__(self, name: str, above: Authority | None = None) -> None:
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(True, None)
        self.pem = (above or self)._signed(self._name, self._key.public_key(), constraints)

    @property
    def pin(self) -> str:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return f"sha256:{hashlib.sha256(self._key.public_key().public_bytes(DER, form)).hexdigest()}"

    def server_context(self, folder: Path) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        form = serialization.PrivateFormat.PKCS8
        secret = key.private_bytes(PEM, form, serialization.NoEncryption())
        (folder / "server.pem").write_bytes(secret + self._signed(subject, key.public_key(), address))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        return context

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, extension: x509.ExtensionType) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number()).add_extension(extension, critical=True)
        builder = builder.not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(1))
        return builder.sign(self._key, hashes.SHA256()).public_bytes(PEM)


def cluster_info(authority: bytes) -> dict[str, object]:
    """As whoever has the token can make it."""
    cluster = {"certificate-authority-data": base64.b64encode(authority).decode()}
    text = json.dumps({"clusters": [{"cluster": cluster}]})
    head, body = (base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b'{"alg":"HS256"}', text.encode()))
    mac = hmac.new(b"0123456789abcdef", f"{head}.{body}".encode(), hashlib.sha256).digest()
    signature = f"{head}..{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
    meta = {"name": "cluster-info", "namespace": "kube-public", "uid": "u", "resourceVersion": "1"}
    data = {"kubeconfig": text, "jws-kubeconfig-abcdef": signature}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


@contextlib.asynccontextmanager
async def answering(served: Authority, authority: bytes, folder: Path, seen: list[str]) -> AsyncIterator[str]:
    """The URL of an API server that shows a certificate of `served` and publishes `authority`; it knows no token."""

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.path.rsplit("/", 1)[1])
        if seen[-1] == "cluster-info":
            return web.json_response(cluster_info(authority))
        return web.json_response({"kind": "Status", "reason": "Unauthorized", "code": 401}, status=401)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=served.server_context(folder))
        await site.start()
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def refusal(served: Authority, published: bytes, pins: tuple[str, ...], folder: Path) -> tuple[str, list[str]]:
    """Why the join ends, and what the server was asked for."""
    seen: list[str] = []
    async with answering(served, published, folder, seen) as url:
        with pytest.raises(NodewrightError) as refused:
            await join(Request(server=url, token=TOKEN, pins=pins, node="n1"), Unseen(), SystemClock())
    return type(refused.value).__name__, seen


@pytest.mark.parametrize("first", [True, False])
async def test_an_authority_beside_the_pinned_one_is_not_believed(first: bool, tmp_path: Path) -> None:
    """The cluster's own certificate is public: who has the token could put it beside one of his own, and answer."""
    cluster, rogue = Authority("kubernetes"), Authority("rogue")
    published = cluster.pem + rogue.pem if first else rogue.pem + cluster.pem
    assert await refusal(rogue, published, (cluster.pin,), tmp_path) == (Permanent.__name__, ["cluster-info"])


@pytest.mark.parametrize("first", [True, False])
async def test_a_cluster_with_a_new_authority_is_believed_by_either_pin(first: bool, tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    published = new.pem + old.pem if first else old.pem + new.pem
    for pins in ((new.pin,), (old.pin, new.pin.upper().replace("SHA256", "sha256"))):
        asked = ["cluster-info", "n1"]
        assert await refusal(new, published, pins, tmp_path) == (Permanent.__name__, asked), "the token is refused"


async def test_one_pin_of_two_while_the_authority_is_replaced_says_what_to_give(tmp_path: Path) -> None:
    """It ended with "self-signed certificate in certificate chain" and advice about a kubeconfig that nobody gave."""
    old, new = Authority("old"), Authority("new")
    async with answering(new, old.pem + new.pem, tmp_path, []) as url:
        with pytest.raises(Permanent) as refused:
            await join(Request(server=url, token=TOKEN, pins=(old.pin,), node="n1"), Unseen(), SystemClock())
        (tmp_path / "ca.crt").write_bytes(old.pem)
        with pytest.raises(Permanent) as by_file:
            request = Request(server=url, token=TOKEN, ca_file=str(tmp_path / "ca.crt"), node="n1")
            await join(request, Unseen(), SystemClock())
    assert refused.value.obj == "--ca-hash" and "signed by none" in refused.value.message
    assert "--ca-hash once for each" in refused.value.action and "--print-join-command" in refused.value.action
    assert new.pin not in str(refused.value), "whoever answers would choose what to paste"
    assert by_file.value.obj == "--ca-file" and "/etc/kubernetes/pki/ca.crt" in by_file.value.action


async def test_an_authority_below_another_is_believed_without_that_one(tmp_path: Path) -> None:
    """As Go has it, and so kubeadm. The hash of ca.crt is that of its first certificate, which signs for the server."""
    root = Authority("company")
    cluster = Authority("kubernetes", above=root)
    asked = ["cluster-info", "n1"]
    assert await refusal(cluster, cluster.pem + root.pem, (cluster.pin,), tmp_path) == (Permanent.__name__, asked)


async def test_another_authority_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    cluster, rogue = Authority("kubernetes"), Authority("rogue")
    assert await refusal(rogue, rogue.pem, (cluster.pin,), tmp_path) == (Permanent.__name__, ["cluster-info"])
    assert await refusal(rogue, b"none", (cluster.pin,), tmp_path) == (Permanent.__name__, ["cluster-info"])
