"""What the HTTPS server is told of certificates, and what a client's says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from agent.common.model.binding import config
from agent.common.model.durations import seconds


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

    anonymous: Annotated[bool, config("authentication.anonymous.enabled")]
    client_ca_file: Annotated[str, config("authentication.x509.clientCAFile")]
    webhook: Annotated[bool, config("authentication.webhook.enabled")]
    webhook_cache_ttl: Annotated[float, config("authentication.webhook.cacheTTL", convert=seconds)]
    mode: Annotated[str, config("authorization.mode")]
    authorized_ttl: Annotated[float, config("authorization.webhook.cacheAuthorizedTTL", convert=seconds)]
    unauthorized_ttl: Annotated[float, config("authorization.webhook.cacheUnauthorizedTTL", convert=seconds)]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The HTTPS server on `port`, the health server (port 0: none) and the read-only port (0: none).

    `local_socket`: a unix socket for root on this machine, "": none.
    """

    enabled: Annotated[bool, config("enableServer")]
    address: Annotated[str, config("address")]
    port: Annotated[int, config("port")]
    read_only_port: Annotated[int, config("readOnlyPort")]
    tls_cert_file: Annotated[str, config("tlsCertFile")]
    tls_key_file: Annotated[str, config("tlsPrivateKeyFile")]
    tls_min_version: Annotated[str, config("tlsMinVersion")]
    tls_cipher_suites: Annotated[tuple[str, ...], config("tlsCipherSuites", convert=tuple)]
    healthz_address: Annotated[str, config("healthzBindAddress")]
    healthz_port: Annotated[int, config("healthzPort")]
    debugging_handlers: Annotated[bool, config("enableDebuggingHandlers")]
    system_log_handler: Annotated[bool, config("enableSystemLogHandler")]
    streaming_idle_timeout: Annotated[float, config("streamingConnectionIdleTimeout", convert=seconds)]
    auth: AuthSettings
    tls_bootstrap: Annotated[bool, config("serverTLSBootstrap")] = False
    local_socket: str = "/run/nodewright/agent.sock"
