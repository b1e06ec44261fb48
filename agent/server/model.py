"""Settings of the HTTPS server, its certificates, and what its edges find."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of the serving certificate and of the client CAs, and the allowed versions and ciphers.

    `preferred` holds certificate and key in one file and replaces the pair as soon as it exists.
    """

    cert_file: str
    key_file: str
    client_ca_file: str = ""
    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()
    preferred: str = ""


@dataclass(frozen=True, slots=True)
class ClientSubject:
    """The subject of a client certificate that TLS has verified. `fingerprint` is its SHA-256 in hex."""

    name: str
    uid: str
    groups: tuple[str, ...]
    fingerprint: str


def self_signed_files(folder: str) -> tuple[str, str]:
    """Paths of the self-signed certificate and its key in `folder`, with upstream's names."""
    return f"{folder}/kubelet.crt", f"{folder}/kubelet.key"


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who may use the kubelet API. The times are how long the API server's answers are cached, in seconds."""

    anonymous: bool
    client_ca_file: str
    webhook: bool
    webhook_cache_ttl: float
    mode: str
    authorized_ttl: float
    unauthorized_ttl: float


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The HTTPS server on `port`, the read-only port and the health port (0 for none of them).

    `local_socket` is a unix socket for root on this machine, "" for none. `streaming_idle_timeout` in seconds.
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


@dataclass(frozen=True, slots=True)
class SystemLogFile:
    """A regular file below the host's log folder; `path` is absolute and free of links."""

    path: str


@dataclass(frozen=True, slots=True)
class SystemLogFolder:
    """A folder below the host's log folder: sorted names, those of folders with a slash at the end."""

    names: tuple[str, ...]
