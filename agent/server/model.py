"""Settings of the HTTPS server, its certificates, and what its edges find."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, BinaryIO

from agent.common.model.binding import config, gate
from agent.common.model.durations import seconds


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of the serving certificate and of the client CAs, and the allowed versions, ciphers and curves (numbers of
    the IANA registry, as Go's crypto/tls has them; none: the library's).

    `preferred` holds certificate and key in one file and replaces the pair as soon as it exists.
    """

    cert_file: str
    key_file: str
    client_ca_file: str = ""
    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()
    preferred: str = ""
    curves: tuple[int, ...] = ()


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
    """Who may use the kubelet API. The times are how long the API server's answers are cached, in seconds.

    `streams_need_create`: see agent.server.plan.authz.attributes. The gate's name is the API server's, which has the
    same check.
    """

    anonymous: Annotated[bool, config("authentication.anonymous.enabled")]
    client_ca_file: Annotated[str, config("authentication.x509.clientCAFile")]
    webhook: Annotated[bool, config("authentication.webhook.enabled")]
    webhook_cache_ttl: Annotated[float, config("authentication.webhook.cacheTTL", convert=seconds)]
    mode: Annotated[str, config("authorization.mode")]
    authorized_ttl: Annotated[float, config("authorization.webhook.cacheAuthorizedTTL", convert=seconds)]
    unauthorized_ttl: Annotated[float, config("authorization.webhook.cacheUnauthorizedTTL", convert=seconds)]
    streams_need_create: Annotated[bool, gate("AuthorizePodWebsocketUpgradeCreatePermission")] = True


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The HTTPS server on `port`, the read-only port and the health port (0 for none of them).

    `local_socket` is a unix socket for root on this machine, "" for none. `streaming_idle_timeout` in seconds.
    `most_streams`: logs, commands and ports that are open at a time, below the number of connections.
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
    debug_flags_handler: Annotated[bool, config("enableDebugFlagsHandler")] = True
    tls_curves: Annotated[tuple[int, ...], config("tlsCurvePreferences", convert=tuple)] = ()
    system_log_query: Annotated[bool, config("enableSystemLogQuery")] = False
    flagz: Annotated[bool, gate("ComponentFlagz")] = True
    statusz: Annotated[bool, gate("ComponentStatusz")] = True
    checkpoints: Annotated[bool, gate("ContainerCheckpoint")] = True
    allocated_pods: Annotated[bool, gate("KubeletAllocatedPodsEndpoint")] = False
    pods_api: Annotated[bool, gate("PodsAPI")] = True
    tls_bootstrap: Annotated[bool, config("serverTLSBootstrap")] = False
    local_socket: str = "/run/nodewright/agent.sock"
    most_streams: int = 700
    most_streams_of_namespace: int = 250


@dataclass(frozen=True, slots=True)
class SystemLogFile:
    """A regular file below the host's log folder, opened; `path` is absolute and free of links."""

    path: str
    file: BinaryIO = field(compare=False)


@dataclass(frozen=True, slots=True)
class SystemLogFolder:
    """A folder below the host's log folder: sorted names, those of folders with a slash at the end.

    `more`: there are more names than these.
    """

    names: tuple[str, ...]
    more: bool = False


class UpgradeFailed(Exception):
    """No upgrade of a connection took place: `status`, `body` and `headers` are the answer for the client."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        super().__init__(body.decode(errors="replace"))
        self.status = status
        self.body = body
        self.headers = headers or {}
