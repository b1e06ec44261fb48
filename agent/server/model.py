"""What the HTTPS server is told of certificates, and what a client's says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the serving pair and the client CAs are, and what may be spoken.

    `preferred`: certificate and key in one file, which takes the place of the pair as soon as it is there.
    """

    cert_file: str
    key_file: str
    client_ca_file: str = ""
    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()
    preferred: str = ""


@dataclass(frozen=True, slots=True)
class ClientSubject:
    """Of a client certificate that TLS has verified; `fingerprint`: SHA-256 in hex."""

    name: str
    uid: str
    groups: tuple[str, ...]
    fingerprint: str


def self_signed_files(folder: str) -> tuple[str, str]:
    """Certificate and key that an unconfigured server keeps in its cert-dir; upstream's names."""
    return f"{folder}/kubelet.crt", f"{folder}/kubelet.key"


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who may use the kubelet API, and how long answers of the API server are remembered."""

    anonymous: bool
    client_ca_file: str
    webhook: bool
    webhook_cache_ttl: float
    mode: str
    authorized_ttl: float
    unauthorized_ttl: float


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The HTTPS server on `port`, the health server (port 0: none) and the read-only port (0: none).

    `local_socket`: a unix socket for root on this machine, "": none.
    """

    enabled: bool
    address: str
    port: int
    read_only_port: int
    tls_cert_file: str
    tls_key_file: str
    tls_min_version: str
    tls_cipher_suites: tuple[str, ...]
    healthz_address: str
    healthz_port: int
    debugging_handlers: bool
    system_log_handler: bool
    streaming_idle_timeout: float
    auth: AuthSettings
    tls_bootstrap: bool = False
    local_socket: str = ""


class UpgradeFailed(Exception):
    """No upgrade of a connection took place: `status`, `body` and `headers` are the answer for the client."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        super().__init__(body.decode(errors="replace"))
        self.status = status
        self.body = body
        self.headers = headers or {}
