"""The configuration of credential provider plugins, when they are asked, and their answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.images.plan import credential_providers as plan
from nodelib.errors import Invalid

V1 = "credentialprovider.kubelet.k8s.io/v1"
GOOD: dict[str, Any] = {
    "name": "ecr",
    "apiVersion": V1,
    "matchImages": ["*.reg.io/team", "reg.io:5000"],
    "defaultCacheDuration": "10m",
    "args": ["get"],
    "env": [{"name": "REGION", "value": "x"}],
}


def config(*providers: Any, **more: Any) -> dict[str, Any]:
    body = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": list(providers)}
    return {**body, **more}


def test_a_provider() -> None:
    (found,) = plan.providers(config(GOOD), "file")
    assert (found.name, found.args, found.env, found.cache) == ("ecr", ("get",), {"REGION": "x"}, 600.0)


TOKENS = {"serviceAccountTokenAudience": "reg.io", "requireServiceAccount": True, "cacheType": "ServiceAccount"}


@pytest.mark.parametrize(
    ("document", "part"),
    [
        (None, "kind must be CredentialProviderConfig"),
        (config(GOOD, apiVersion="v1"), "apiVersion must be kubelet.config.k8s.io/v1"),
        (config(), "at least one is needed"),
        (config("x"), r"providers\[0\] must be an object"),
        (config({**GOOD, "name": "../x"}), "name must be the name of a file"),
        (config({**GOOD, "apiVersion": "v9"}), "apiVersion must be credentialprovider"),
        (config({**GOOD, "matchImages": []}), "at least one pattern"),
        (config({**GOOD, "defaultCacheDuration": None}), "must be a duration"),
        (config({**GOOD, "defaultCacheDuration": "-1s"}), "must not be negative"),
        (config({**GOOD, "tokenAttributes": {"x": 1}}), "serviceAccountTokenAudience is required"),
        (config({**GOOD, "tokenAttributes": {**TOKENS, "requireServiceAccount": 1}}), "must be true or false"),
        (config({**GOOD, "tokenAttributes": {**TOKENS, "cacheType": "Pod"}}), "cacheType must be one of"),
        (config({**GOOD, "tokenAttributes": TOKENS, "apiVersion": plan._VERSIONS[1]}), "is only supported for"),
        (
            config({**GOOD, "tokenAttributes": {**TOKENS, "requiredServiceAccountAnnotationKeys": ["a b"]}}),
            "'a b' is not a key of an annotation",
        ),
        (
            config({**GOOD, "tokenAttributes": {**TOKENS, "optionalServiceAccountAnnotationKeys": ["a", "a"]}}),
            "'a' is given twice",
        ),
        (
            config(
                {
                    **GOOD,
                    "tokenAttributes": {
                        **TOKENS,
                        "requireServiceAccount": False,
                        "requiredServiceAccountAnnotationKeys": ["a"],
                        "optionalServiceAccountAnnotationKeys": ["a"],
                    },
                }
            ),
            "requireServiceAccount cannot be false .* cannot be both required and optional: a",
        ),
        (config(GOOD, GOOD), "'ecr' is given twice"),
    ],
)
def test_a_wrong_file_is_refused(document: Any, part: str) -> None:
    with pytest.raises(Invalid, match=part):
        plan.providers(document, "file")


@pytest.mark.parametrize(
    ("image", "name", "asked"),
    [
        ("busybox", "docker.io/library/busybox", False),
        ("team/app:1", "docker.io/team/app", False),
        ("eu.reg.io/team/app:1@sha256:0", "eu.reg.io/team/app", True),
        ("eu.reg.io/other", "eu.reg.io/other", False),
        ("reg.io:5000/x", "reg.io:5000/x", True),
        ("localhost/x", "localhost/x", False),
    ],
)
def test_plugins_that_are_asked(image: str, name: str, asked: bool) -> None:
    (provider,) = plan.providers(config(GOOD), "file")
    assert plan.full_name(image) == name
    assert plan.concerns(provider, name) is asked


def answer(**fields: Any) -> str:
    body = {"kind": "CredentialProviderResponse", "apiVersion": V1, "cacheKeyType": "Image"}
    return json.dumps({**body, "auth": {"*.reg.io": {"username": "u", "password": "p"}}, **fields})


@pytest.mark.parametrize(
    ("fields", "key", "seconds"),
    [
        ({}, "Image/eu.reg.io/team/app", 600.0),
        ({"cacheKeyType": "Registry", "cacheDuration": "5s"}, "Registry/eu.reg.io", 5.0),
        ({"cacheKeyType": "Global", "cacheDuration": "0"}, "Global/global", 0.0),
    ],
)
def test_answers(fields: dict[str, Any], key: str, seconds: float) -> None:
    (provider,) = plan.providers(config(GOOD), "file")
    found = plan.answer(provider, "eu.reg.io/team/app", answer(**fields))
    assert (found.key, found.seconds) == (key, seconds)
    assert found.credentials["*.reg.io"].auth == {"username": "u", "password": "p"}


@pytest.mark.parametrize(
    "text",
    ["", "[]", answer(kind="x"), answer(apiVersion="v9"), answer(cacheKeyType="y"), answer(auth={"a": 1})],
    ids=["nothing", "a list", "kind", "version", "key type", "auth"],
)
def test_a_wrong_answer_is_refused(text: str) -> None:
    (provider,) = plan.providers(config(GOOD), "file")
    with pytest.raises(Invalid):
        plan.answer(provider, "eu.reg.io/team/app", text)


def test_a_plugin_that_gets_tokens() -> None:
    given = {**TOKENS, "requiredServiceAccountAnnotationKeys": ["reg.io/role"]}
    (found,) = plan.providers(config({**GOOD, "tokenAttributes": given}), "file")
    assert found.tokens == plan.TokenAttributes("reg.io", True, False, ("reg.io/role",), ())
    with pytest.raises(Invalid, match="KubeletServiceAccountTokenForCredentialProviders"):
        plan.providers(config({**GOOD, "tokenAttributes": given}), "file", tokens=False)
