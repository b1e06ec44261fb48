"""A whole server on free ports, with certificates of its own and a pod registry in memory."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from prometheus_client import CollectorRegistry

from agent.build.server import server_edges
from agent.common.work.gate import Gate
from agent.runtime.ports import RuntimeService
from agent.server.model import AuthSettings, ServerSettings
from agent.server.work import KubeletServer, ServedNode, ServerDeps, ServerEdges, start
from nodelib.clock import Clock
from tests.fakes.agent_view import FakeServerRuntime, FakeView, add_pod

Signer = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]


class Authority:
    """A certificate authority of a test; writes PEM files. `above`: who signed it, None: itself."""

    def __init__(self, folder: Path, name: str, above: Authority | None = None) -> None:
        self.folder = folder
        self.path = folder / f"{name}.crt"
        self._signer: Signer = self._sign(name, (), above._signer if above else None, is_authority=True)
        self.path.write_bytes(self._signer[1].public_bytes(serialization.Encoding.PEM))

    def issue(self, file: str, name: str, *groups: str) -> tuple[str, str]:
        """Paths of certificate and key."""
        key, certificate = self._sign(name, groups, self._signer)
        cert_path, key_path = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return str(cert_path), str(key_path)

    @staticmethod
    def _sign(name: str, groups: tuple[str, ...], signer: Signer | None, *, is_authority: bool = False) -> Signer:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(signer[1].subject if signer else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        )
        if not is_authority:
            uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        return key, builder.sign(signer[0] if signer else key, hashes.SHA256())


class Reviewer:
    """The API server's two review endpoints, as nodelib's client reaches them."""

    def __init__(self) -> None:
        self.tokens: dict[str, dict[str, Any]] = {}
        self.allowed: set[tuple[str, str, str]] = set()
        self.calls: list[tuple[str, Any]] = []
        self.fail: list[Exception] = []

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((path.rsplit("/", 1)[1], body["spec"]))
        if self.fail:
            raise self.fail.pop(0)
        spec = body["spec"]
        if path.endswith("tokenreviews"):
            user = self.tokens.get(spec["token"])
            return {"status": {"authenticated": user is not None, "user": user or {}}}
        what = spec["resourceAttributes"]
        return {"status": {"allowed": (spec["user"], what["verb"], what["subresource"]) in self.allowed}}


@dataclass
class Bench:
    """One server with the pod registry, runtime and API server that it asks."""

    folder: Path
    authority: Authority
    view: FakeView = field(default_factory=FakeView)
    reviewer: Reviewer = field(default_factory=Reviewer)
    health: str = ""
    server: KubeletServer | None = None

    def __post_init__(self) -> None:
        self.runtime = FakeServerRuntime(self.view)

    def settings(self, **auth: Any) -> ServerSettings:
        cert, key = self.authority.issue("serving", "node-1")
        base = replace(AuthSettings(False, str(self.authority.path), True, 120, "Webhook", 300, 30), **auth)
        return ServerSettings(
            True, "127.0.0.1", -1, 0, cert, key, "", (), "127.0.0.1", -1, True, True, 3600, base, local_socket=""
        )

    async def start(
        self,
        settings: ServerSettings,
        clock: Clock | None = None,
        edges: Callable[[ServerEdges], ServerEdges] = lambda edges: edges,
        **deps: Any,
    ) -> KubeletServer:
        node = ServedNode("node-1", str(self.folder / "pki"), system_log_dir=str(self.folder / "log"), configz={"a": 1})
        parts = ServerDeps(
            settings,
            node,
            self.view,
            cast(RuntimeService, self.runtime),
            self.reviewer,
            CollectorRegistry(),
            lambda: self.health,
            edges(server_edges()),
            **{"commands": Gate(), **deps},
        )
        self.server = await start(parts, clock)
        return self.server

    def url(self, path: str, listener: str = "kubelet") -> str:
        assert self.server is not None
        scheme = "https" if listener == "kubelet" else "http"
        return f"{scheme}://localhost:{self.server.addresses[listener][1]}{path}"

    def tls(self, pair: tuple[str, str] | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.path))
        if pair is not None:
            context.load_cert_chain(*pair)
        return context

    def admin(self) -> ssl.SSLContext:
        """A client whose certificate names "admin", who may do everything."""
        for verb in ("get", "create"):
            self.reviewer.allowed |= {("admin", verb, name) for name in ("proxy", "metrics", "stats", "log", "pods")}
        return self.tls(self.authority.issue("admin", "admin", "ops"))

    async def get(self, path: str, tls: ssl.SSLContext | None = None, **options: Any) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session:
            method = options.pop("method", "GET")
            async with session.request(method, self.url(path), ssl=tls or self.tls(), **options) as answer:
                return answer.status, await answer.text()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    (tmp_path / "log").mkdir()
    made = Bench(tmp_path, Authority(tmp_path, "ca"))
    add_pod(made.view, "web", "u1", log_path=str(tmp_path / "0.log"))
    yield made
    if made.server is not None:
        await made.server.close()
