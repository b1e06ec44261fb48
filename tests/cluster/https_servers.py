"""Small HTTPS servers that the API server calls: admission webhooks and an issuer of OIDC tokens."""

from __future__ import annotations

import base64
import contextlib
import datetime
import ipaddress
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import NameOID

from tests.cluster.world import Object

Answer = Callable[[Object], Object]  # AdmissionReview.request -> AdmissionReview.response without its uid


@dataclass(frozen=True)
class Server:
    url: str
    authority: str  # PEM: its certificate signs itself


@contextlib.asynccontextmanager
async def https(app: web.Application, host: str, scratch: Path) -> AsyncIterator[Server]:
    """Serve on a free port of an address of this machine, for the block."""
    key = ec.generate_private_key(ec.SECP256R1())
    authority = _self_signed(key, host)
    pair = scratch / "server.pem"
    pair.write_bytes(_private(key) + authority)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, 0, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        yield Server(f"https://{host}:{port}", authority.decode())
    finally:
        await runner.cleanup()


def webhook(answer: Answer) -> web.Application:
    """https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request"""

    async def review(request: web.Request) -> web.Response:
        asked = await request.json()
        response = {"uid": asked["request"]["uid"], **answer(asked["request"])}
        return web.json_response({"apiVersion": asked["apiVersion"], "kind": "AdmissionReview", "response": response})

    app = web.Application()
    app.router.add_post("/", review)
    return app


class Issuer:
    """An OpenID Connect provider that vouches for anybody: discovery, one key, tokens signed ES256."""

    def __init__(self) -> None:
        self.url = ""
        self._key = ec.generate_private_key(ec.SECP256R1())

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._discovery)
        app.router.add_get("/keys", self._keys)
        return app

    def token(self, audience: str, lifetime: float = 600, **claims: object) -> str:
        """A signed JWT that ends `lifetime` seconds from now (a negative one has ended)."""
        now = int(time.time())
        body = {"iss": self.url, "aud": audience, "iat": now - 60, "exp": now + int(lifetime), **claims}
        signed = f"{_part({'alg': 'ES256', 'kid': 'one', 'typ': 'JWT'})}.{_part(body)}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_text(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    async def _discovery(self, _: web.Request) -> web.Response:
        kinds = {"response_types_supported": ["id_token"], "subject_types_supported": ["public"]}
        signing = {"id_token_signing_alg_values_supported": ["ES256"]}
        return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/keys", **kinds, **signing})

    async def _keys(self, _: web.Request) -> web.Response:
        numbers = self._key.public_key().public_numbers()
        point = {"x": _text(numbers.x.to_bytes(32, "big")), "y": _text(numbers.y.to_bytes(32, "big"))}
        return web.json_response(
            {"keys": [{"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "one"} | point]}
        )


def request_for(name: str, *groups: str) -> tuple[bytes, bytes]:
    """A private key and a certificate request for it, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name), *organizations])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return _private(key), request.public_bytes(serialization.Encoding.PEM)


def _self_signed(key: ec.EllipticCurvePrivateKey, host: str) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=2))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _part(value: object) -> str:
    return _text(json.dumps(value).encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
