"""Where spans go: the `endpoint` of upstream's TracingConfiguration. Pure.

Upstream takes gRPC targets only: HOST:PORT, dns:, unix:, unix-abstract: (component-base/tracing/api/v1). http:// and
https:// are for collectors that are reached by OTLP/HTTP; upstream refuses them.
"""

from __future__ import annotations

from urllib.parse import urlsplit

DEFAULT = "localhost:4317"
_GRPC = ("dns", "unix", "unix-abstract")
_HTTP = ("http", "https")
_PATH = "/v1/traces"
_LONGEST = 1024


def problem(endpoint: str) -> str:
    """Why it cannot be an endpoint; "" if it can."""
    if len(endpoint) > _LONGEST or not endpoint.isprintable() or " " in endpoint:
        return "is not an address"
    try:
        found = urlsplit(endpoint if "//" in endpoint else f"dns://{endpoint}")
        port = found.port
    except ValueError as error:
        return str(error)
    if found.scheme not in (*_GRPC, *_HTTP):
        return f"unsupported scheme {found.scheme}: HOST:PORT, dns, unix, unix-abstract, http and https are known"
    if found.scheme in _HTTP and (not found.hostname or port == 0):
        return "names no host"
    return ""


def is_http(endpoint: str) -> bool:
    return endpoint.startswith(("http://", "https://"))


def traces_url(endpoint: str) -> str:
    """The URL to post spans to: the path of OTLP is added unless there is one."""
    found = urlsplit(endpoint)
    return endpoint if found.path.strip("/") else f"{found.scheme}://{found.netloc}{_PATH}"
