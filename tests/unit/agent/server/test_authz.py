"""Request attributes, as the table of upstream's auth_test.go, and the bodies and texts around them."""

from __future__ import annotations

import base64

import pytest

from agent.server.plan import authz
from agent.server.plan.authz import User

_FINE = {
    "/attach/{podNamespace}/{podID}/{containerName}": ("proxy",),
    "/attach/{podNamespace}/{podID}/{uid}/{containerName}": ("proxy",),
    "/checkpoint/{podNamespace}/{podID}/{containerName}": ("checkpoint",),
    "/configz": ("configz", "proxy"),
    "/flagz": ("configz",),
    "/statusz": ("statusz",),
    "/containerLogs/{podNamespace}/{podID}/{containerName}": ("proxy",),
    "/debug/flags/v": ("proxy",),
    "/debug/pprof/{subpath:*}": ("proxy",),
    "/exec/{podNamespace}/{podID}/{containerName}": ("proxy",),
    "/exec/{podNamespace}/{podID}/{uid}/{containerName}": ("proxy",),
    "/healthz": ("healthz", "proxy"),
    "/healthz/log": ("healthz", "proxy"),
    "/healthz/ping": ("healthz", "proxy"),
    "/healthz/syncloop": ("healthz", "proxy"),
    "/logs/": ("log",),
    "/logs/{logpath:*}": ("log",),
    "/metrics": ("metrics",),
    "/metrics/slis": ("metrics",),
    "/metrics/cadvisor": ("metrics",),
    "/metrics/probes": ("metrics",),
    "/metrics/resource": ("metrics",),
    "/pods": ("pods", "proxy"),
    "/pods/": ("pods", "proxy"),
    "/allocatedPods/ns/pod": ("pods", "proxy"),
    "/portForward/{podNamespace}/{podID}": ("proxy",),
    "/portForward/{podNamespace}/{podID}/{uid}": ("proxy",),
    "/run/{podNamespace}/{podID}/{containerName}": ("proxy",),
    "/run/{podNamespace}/{podID}/{uid}/{containerName}": ("proxy",),
    "/runningpods/": ("pods", "proxy"),
    "/stats/": ("stats",),
    "/stats/summary": ("stats",),
    "/metricsx": ("proxy",),
    "/podsx": ("proxy",),
    "/exec/metrics/stats/logs": ("proxy",),
}
_VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "HEAD": ""}


@pytest.mark.parametrize("path", _FINE)
@pytest.mark.parametrize("method", _VERBS)
def test_attributes(method: str, path: str) -> None:
    asked = authz.attributes(method, path)
    assert (asked.verb, asked.subresources) == (_VERBS[method], _FINE[path])


@pytest.mark.parametrize("path", _FINE)
def test_without_fine_grained_authorization_only_the_last_subresource_is_asked(path: str) -> None:
    assert authz.attributes("GET", path, fine_grained=False).subresources == _FINE[path][-1:]


@pytest.mark.parametrize(
    ("subpath", "path", "expected"),
    [
        ("", "", True),
        ("foo", "foo", True),
        ("/foo/", "/foo/", True),
        ("/foo/bar", "/foo/bar", True),
        ("/foo", "/", True),
        ("/foo/bar", "/", True),
        ("/foo/", "/foo", True),
        ("/foo/bar", "/foo", True),
        ("/foo", "/bar", False),
        ("/foo", "/foobar", False),
        ("/foobar", "/foo", False),
    ],
)
def test_is_subpath(subpath: str, path: str, expected: bool) -> None:
    assert authz.is_subpath(subpath, path) is expected


@pytest.mark.parametrize(
    ("user", "groups"),
    [
        (User("jane", groups=("dev",)), ("dev", "system:authenticated")),
        (User("jane", groups=("system:authenticated",)), ("system:authenticated",)),
        (User("jane", groups=("system:unauthenticated",)), ("system:unauthenticated",)),
        (authz.anonymous_user(), ("system:unauthenticated",)),
    ],
    ids=["added", "already there", "marked unauthenticated", "anonymous"],
)
def test_authenticated_group(user: User, groups: tuple[str, ...]) -> None:
    assert authz.with_authenticated_group(user).groups == groups


_ENCODED = base64.urlsafe_b64encode(b"secret").decode().rstrip("=")


@pytest.mark.parametrize(
    ("authorization", "protocols", "token"),
    [
        ("Bearer secret", "", "secret"),
        ("  bearer secret extra", "", "secret"),
        ("Bearer", "", ""),
        ("Bearer  secret", "", ""),
        ("Basic c2VjcmV0", "", ""),
        ("", f"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.{_ENCODED}", "secret"),
        ("", "base64url.bearer.authorization.k8s.io.%%%", ""),
        ("", "v4.channel.k8s.io", ""),
    ],
)
def test_bearer_token(authorization: str, protocols: str, token: str) -> None:
    assert authz.bearer_token(authorization, protocols) == token


def test_the_token_goes_no_further_than_us() -> None:
    asked = f"base64url.bearer.authorization.k8s.io.{_ENCODED}, v4.channel.k8s.io,channel.k8s.io"
    assert authz.without_token(asked) == "v4.channel.k8s.io, channel.k8s.io"


@pytest.mark.parametrize(
    ("status", "user"),
    [
        ({}, None),
        ({"authenticated": False, "error": "expired"}, None),
        ({"authenticated": True, "user": {}}, None),
        (
            {"authenticated": True, "user": {"username": "u", "uid": "1", "groups": ["g"], "extra": {"k": ["v"]}}},
            User("u", "1", ("g",), {"k": ("v",)}),
        ),
    ],
    ids=["no status", "refused", "nameless", "known"],
)
def test_reviewed_user(status: dict[str, object], user: User | None) -> None:
    assert authz.reviewed_user({"status": status}) == user


def test_access_review() -> None:
    user = User("u", "1", ("g",), {"Key": ("v",)})
    assert authz.access_review(user, "node-1", "get", "stats")["spec"] == {
        "user": "u",
        "uid": "1",
        "groups": ["g"],
        "extra": {"key": ["v"]},
        "resourceAttributes": {
            "verb": "get",
            "version": "v1",
            "resource": "nodes",
            "subresource": "stats",
            "name": "node-1",
        },
    }


@pytest.mark.parametrize(
    ("status", "allowed"),
    [({"allowed": True}, True), ({}, False), ({"allowed": True, "denied": True}, False), ({"denied": True}, False)],
)
def test_is_allowed(status: dict[str, bool], allowed: bool) -> None:
    assert authz.is_allowed({"status": status}) is allowed


def test_long_names_are_not_remembered() -> None:
    assert authz.is_cacheable(User("u"), "/pods")
    assert not authz.is_cacheable(User("u" * 10_000), "/pods")
    assert not authz.is_cacheable(User("u"), "/" + "x" * 10_000)


def test_texts_are_upstreams() -> None:
    asked = authz.attributes("GET", "/pods")
    assert authz.forbidden(User("jane"), asked) == (
        "Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
    )
    assert authz.undecided(User("jane"), asked, "pods") == (
        "Authorization error (user=jane, verb=get, resource=nodes, subresource=pods)"
    )
