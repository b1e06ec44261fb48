"""The table of who gets in where, for tests of this server and of upstream's kubelet.

An identity's rights are (verb, subresource of nodes). Whether the endpoint then works is another matter: "in" is
whatever is answered after authorization.
"""

from __future__ import annotations

METHODS = ("GET", "POST", "PUT", "OPTIONS")
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "DELETE": "delete", "PATCH": "patch"}
STREAMS = (
    "/exec/ns/web/main",
    "/exec/ns/web/u1/main",
    "/attach/ns/web/main",
    "/attach/ns/web/u1/main",
    "/portForward/ns/web",
    "/portForward/ns/web/u1",
    "/run/ns/web/main",
    "/run/ns/web/u1/main",
)
# Path -> the subresources one of which is enough, finest first.
ENDPOINTS: dict[str, tuple[str, ...]] = {
    "/healthz": ("healthz", "proxy"),
    "/healthz/ping": ("healthz", "proxy"),
    "/healthz/syncloop": ("healthz", "proxy"),
    "/pods": ("pods", "proxy"),
    "/pods/": ("pods", "proxy"),
    "/runningpods": ("pods", "proxy"),
    "/runningpods/": ("pods", "proxy"),
    "/configz": ("configz", "proxy"),
    "/metrics": ("metrics",),
    "/metrics/cadvisor": ("metrics",),
    "/metrics/probes": ("metrics",),
    "/metrics/resource": ("metrics",),
    "/stats/summary": ("stats",),
    "/logs": ("log",),
    "/logs/": ("log",),
    "/logs/x": ("log",),
    "/statusz": ("statusz",),
    "/flagz": ("configz",),
    "/checkpoint/ns/web/main": ("checkpoint",),
    "/containerLogs/ns/web/main": ("proxy",),
    "/debug/pprof/heap": ("proxy",),
    "/debug/flags/v": ("proxy",),
    "/nothing": ("proxy",),
    "/": ("proxy",),
    **dict.fromkeys(STREAMS, ("proxy",)),
}
UNKNOWN_UPSTREAM = ("/", "/nothing", "/why", "/why/ns/web", "/images")  # the last three are our own
ENDPOINTS |= dict.fromkeys(UNKNOWN_UPSTREAM, ("proxy",))

SUBRESOURCES = ("proxy", "pods", "log", "stats", "metrics", "healthz", "configz", "statusz", "checkpoint")
RIGHTS: dict[str, frozenset[tuple[str, str]]] = {
    "nobody": frozenset(),
    "a wrong token": frozenset(),
    "anonymous": frozenset(),
    "without rights": frozenset(),
    **{f"get nodes/{name}": frozenset((("get", name),)) for name in SUBRESOURCES},
    **{f"create nodes/{name}": frozenset((("create", name),)) for name in ("proxy", "stats")},
    "get everything": frozenset(("get", name) for name in SUBRESOURCES),
    "everything": frozenset((verb, name) for name in SUBRESOURCES for verb in _VERBS.values()),
}


def expected(identity: str, method: str, path: str, *, upstream: bool = False) -> str:
    """ "401", "403" or "in". Upstream's kubelet lets a get open streams, and tells everybody which paths it has not."""
    if upstream and path in UNKNOWN_UPSTREAM:
        return "in"
    if identity in ("nobody", "a wrong token"):
        return "401"
    verb = _VERBS.get(method, "")
    if not upstream and path in STREAMS:
        verb = "create"
    return "in" if any((verb, name) in RIGHTS[identity] for name in ENDPOINTS[path]) else "403"
