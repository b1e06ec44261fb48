"""Which registry credentials match an image, read from secrets and from files."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agent.images.plan.keyring import match, read_secret
from nodelib.errors import Invalid
from nodelib.json_values import Json


def auth(name: str) -> Json:
    return {"username": name, "password": "p"}


def names(image: str, *registries: str) -> list[str]:
    return [found["username"] for found in match(image, [{registry: auth(registry) for registry in registries}])]


@pytest.mark.parametrize(
    ("image", "registries", "expected"),
    [
        pytest.param("reg.io/a/b:1", ["reg.io"], ["reg.io"], id="host"),
        pytest.param("reg.io/a/b", ["reg.io/a", "reg.io", "reg.io/z"], ["reg.io/a", "reg.io"], id="longest path first"),
        pytest.param("x.reg.io/a", ["*.reg.io"], ["*.reg.io"], id="glob"),
        pytest.param("x.y.reg.io/a", ["*.reg.io"], [], id="a glob is one part"),
        pytest.param("abcreg.io/a", ["a*reg.io"], ["a*reg.io"], id="glob within a part"),
        pytest.param("reg.io:5000/a", ["reg.io"], [], id="port must match"),
        pytest.param("reg.io:5000/a", ["reg.io:5000"], ["reg.io:5000"], id="port"),
        pytest.param("reg.io/a", ["https://reg.io/v1/"], ["https://reg.io/v1/"], id="scheme and API version"),
        pytest.param(
            "busybox", ["https://index.docker.io/v1/"], ["https://index.docker.io/v1/"], id="default registry"
        ),
        pytest.param("library/busybox", ["index.docker.io"], ["index.docker.io"], id="default registry, library"),
        pytest.param("quay.io/x", ["index.docker.io"], [], id="not the default registry"),
        pytest.param("reg.io/a", [], [], id="none"),
        pytest.param("reg.io/a", ["https://[reg", "reg.io"], ["reg.io"], id="what is no name is left out"),
        pytest.param("", ["reg.io"], [], id="no image"),
    ],
)
def test_match(image: str, registries: list[str], expected: list[str]) -> None:
    assert names(image, *registries) == expected


def test_several_secrets_for_one_registry_all_count() -> None:
    found = match("reg.io/a", [{"reg.io": auth("one")}, {"reg.io": auth("two")}])
    assert [item["username"] for item in found] == ["one", "two"]


def secret(key: str, content: Any) -> Json:
    text = content if isinstance(content, str) else json.dumps(content)
    data = {key: base64.b64encode(text.encode()).decode()}
    return {"metadata": {"name": "pull", "namespace": "shop"}, "data": data}


CODED = base64.b64encode(b"me:se:cret").decode()


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        pytest.param(
            secret(".dockerconfigjson", {"auths": {"r": {"auth": CODED}}}),
            {"r": {"username": "me", "password": "se:cret"}},
            id="config.json, auth",
        ),
        pytest.param(
            secret(".dockercfg", {"r": {"username": "a", "password": "b", "email": "c"}}),
            {"r": {"username": "a", "password": "b"}},
            id="dockercfg",
        ),
        pytest.param(
            secret(".dockerconfigjson", {"auths": {"r": {"username": "a", "identitytoken": "t"}}}),
            {"r": {"username": "a", "password": "", "identity_token": "t"}},
            id="identity token",
        ),
        pytest.param(secret(".dockerconfigjson", {"auths": None}), {}, id="no auths"),
        pytest.param(secret(".dockerconfigjson", []), {}, id="not an object"),
        pytest.param(secret("other", {}), {}, id="another type"),
    ],
)
def test_secrets(made: Json, expected: Json) -> None:
    assert read_secret(made, 10) == (expected, 0)


def test_broken_secret() -> None:
    with pytest.raises(Invalid, match=r"Secret shop/pull: .dockerconfigjson is not JSON"):
        read_secret(secret(".dockerconfigjson", "{"), 10)
