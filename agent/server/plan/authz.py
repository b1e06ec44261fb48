"""Authorization of the kubelet API: attributes of requests, bodies of reviews, texts of refusals.

Same contract as upstream's pkg/kubelet/server/auth.go (with KubeletFineGrainedAuthz, GA in
1.36) and the delegating authenticator and authorizer of k8s.io/apiserver.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodelib.json_values import Json

ANONYMOUS = "system:anonymous"
_AUTHENTICATED = "system:authenticated"
_UNAUTHENTICATED = "system:unauthenticated"
_VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_FINE_GRAINED = (
    ("/allocatedPods", "pods"),
    ("/pods", "pods"),
    ("/healthz", "healthz"),
    ("/configz", "configz"),
    ("/runningpods/", "pods"),
)
_COARSE = (
    ("/stats/", "stats"),
    ("/metrics", "metrics"),
    ("/logs/", "log"),
    ("/checkpoint/", "checkpoint"),
    ("/statusz", "statusz"),
    ("/flagz", "configz"),
)
_STREAMS = ("/exec", "/attach", "/portForward", "/run")
_WEBSOCKET_TOKEN = "base64url.bearer.authorization.k8s.io."
_CACHEABLE = 10_000  # characters under the requester's control; with more, the decision is not cached


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a request needs on the Node object: a verb on any one of the subresources."""

    verb: str
    subresources: tuple[str, ...]
    path: str


def is_subpath(subpath: str, path: str) -> bool:
    """Whether `subpath` is `path` or lies below it; a trailing slash of `path` does not matter."""
    path = path.removesuffix("/")
    return subpath == path or subpath.startswith(path + "/")


def attributes(method: str, path: str, *, fine_grained: bool = True, streams_need_create: bool = False) -> Attributes:
    """The attributes of a request, finest subresource first.

    `streams_need_create`: what runs something in a pod needs the verb create, with whatever method it is asked for.
    Upstream's kubelet takes a GET for a get: whoever may `get nodes/proxy`, as many monitoring agents may, runs any
    command in any pod of the node by a WebSocket (https://github.com/kubernetes/kubernetes/issues/133515). Its API
    server has closed the same door for pods/exec (AuthorizePodWebsocketUpgradeCreatePermission).
    """
    found: list[str] = []
    if fine_grained:
        found += [name for prefix, name in _FINE_GRAINED if is_subpath(path, prefix)][:1]
    found.append(next((name for prefix, name in _COARSE if is_subpath(path, prefix)), "proxy"))
    verb = _VERBS.get(method, "")
    if streams_need_create and any(is_subpath(path, prefix) for prefix in _STREAMS):
        verb = "create"
    return Attributes(verb, tuple(found), path)


def with_authenticated_group(user: User) -> User:
    """Add system:authenticated, to which every known user belongs (AuthenticatedGroupAdder)."""
    if user.name == ANONYMOUS or {_AUTHENTICATED, _UNAUTHENTICATED} & set(user.groups):
        return user
    return User(user.name, user.uid, (*user.groups, _AUTHENTICATED), user.extra)


def anonymous_user() -> User:
    return User(ANONYMOUS, groups=(_UNAUTHENTICATED,))


def bearer_token(authorization: str, protocols: str) -> str:
    """The token of an Authorization header, or the one in a WebSocket subprotocol; "" when there is none."""
    parts = authorization.strip().split(" ", 2)
    if len(parts) >= 2 and parts[0].lower() == "bearer":
        return parts[1]
    for protocol in (entry.strip() for entry in protocols.split(",")):
        if protocol.startswith(_WEBSOCKET_TOKEN):
            return _decode_token(protocol.removeprefix(_WEBSOCKET_TOKEN))
    return ""


def without_token(protocols: str) -> str:
    """The subprotocols without the one that carries a token, which must not be forwarded."""
    kept = [entry.strip() for entry in protocols.split(",")]
    return ", ".join(entry for entry in kept if entry and not entry.startswith(_WEBSOCKET_TOKEN))


def _decode_token(encoded: str) -> str:
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""


def token_review(token: str) -> Json:
    """authentication.k8s.io/v1 TokenReview, without audiences like upstream's kubelet."""
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}


def reviewed_user(review: Json) -> User | None:
    """The user of a TokenReview, None when the token is not valid."""
    status = review.get("status") or {}
    user = status.get("user") or {}
    if not status.get("authenticated") or not user.get("username"):
        return None
    extra = {key: tuple(values or ()) for key, values in (user.get("extra") or {}).items()}
    return User(str(user["username"]), str(user.get("uid", "")), tuple(user.get("groups") or ()), extra)


def access_review(user: User, node_name: str, verb: str, subresource: str) -> Json:
    """authorization.k8s.io/v1 SubjectAccessReview on nodes/<subresource> of this node."""
    spec: Json = {
        "user": user.name,
        "groups": list(user.groups),
        "resourceAttributes": {
            "verb": verb,
            "version": "v1",
            "resource": "nodes",
            "subresource": subresource,
            "name": node_name,
        },
    }
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key.lower(): list(values) for key, values in user.extra.items()}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def is_allowed(review: Json) -> bool:
    """The decision of a SubjectAccessReview; `denied` overrides `allowed`."""
    status = review.get("status") or {}
    return bool(status.get("allowed")) and not status.get("denied")


def is_cacheable(user: User, path: str) -> bool:
    """Whether the decision may be cached: long names must not be able to fill the memory."""
    size = len(user.name) + len(user.uid) + len(path) + sum(map(len, user.groups))
    return size + sum(len(key) + sum(map(len, values)) for key, values in user.extra.items()) < _CACHEABLE


def forbidden(user: User, asked: Attributes) -> str:
    """The text of a 403, as upstream's InstallAuthFilter words it."""
    subresources = _go_list(asked.subresources)
    return f"Forbidden (user={user.name}, verb={asked.verb}, resource=nodes, subresource(s)={subresources})\n"


def undecided(user: User, asked: Attributes, subresource: str) -> str:
    """The text of a 500 when the review could not be made."""
    return f"Authorization error (user={user.name}, verb={asked.verb}, resource=nodes, subresource={subresource})"


def _go_list(values: Sequence[str]) -> str:
    return "[" + " ".join(values) + "]"
