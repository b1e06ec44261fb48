"""Credential provider plugins: their configuration, requests and answers (KEP-2133).

Follows pkg/credentialprovider/plugin (config.go, plugin.go) and k8s.io/kubelet/pkg/apis/credentialprovider.
Service account tokens for plugins (tokenAttributes) are refused explicitly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.common.model.durations import seconds
from agent.images.model.pulls import PullCredential
from agent.images.plan.keyring import fits
from agent.images.plan.pull_records import repository
from nodelib.errors import Invalid
from nodelib.json_values import Json, decode

_CONFIG_VERSIONS = tuple(f"kubelet.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_VERSIONS = tuple(f"credentialprovider.kubelet.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_KEY_TYPES = ("Image", "Registry", "Global")


@dataclass(frozen=True, slots=True)
class Provider:
    """A plugin: its file name in the directory of plugins, and the images it is asked about. `cache` in seconds."""

    name: str
    version: str
    images: tuple[str, ...]
    cache: float
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """Credentials by registry pattern, the cache key they are valid for, and for how many seconds; 0: not cached."""

    credentials: Mapping[str, PullCredential]
    key: str
    seconds: float


def providers(document: Any, place: str) -> tuple[Provider, ...]:
    """The plugins of a decoded CredentialProviderConfig. Raises Invalid that names every problem and the file."""
    if not isinstance(document, dict) or document.get("kind") != "CredentialProviderConfig":
        raise _refusal(["kind must be CredentialProviderConfig"], place)
    problems = [] if document.get("apiVersion") in _CONFIG_VERSIONS else [f"apiVersion must be {_CONFIG_VERSIONS[0]}"]
    listed = document.get("providers")
    if not isinstance(listed, list) or not listed:
        raise _refusal([*problems, "providers: at least one is needed"], place)
    found: list[Provider] = []
    for index, one in enumerate(listed):
        path = f"providers[{index}]"
        wrong = list(_problems(one, path)) if isinstance(one, dict) else [f"{path} must be an object"]
        problems += wrong
        if not wrong:
            found.append(_provider(one))
    names = [one.name for one in found]
    problems += [f"the name {name!r} is given twice" for name in {name for name in names if names.count(name) > 1}]
    if problems:
        raise _refusal(problems, place)
    return tuple(found)


def full_name(image: str) -> str:
    """Registry and repository as plugins get them: docker.io/library/busybox."""
    name = repository(image)
    first, slash, _ = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def concerns(provider: Provider, name: str) -> bool:
    """Whether the plugin is asked about this image (full_name())."""
    return any(fits(pattern, name) for pattern in provider.images)


def keys(name: str) -> dict[str, str]:
    """Kind of cache key -> the key under which an answer for this image may be cached."""
    return {"Image": name, "Registry": name.partition("/")[0], "Global": "global"}


def request(provider: Provider, name: str) -> str:
    """The CredentialProviderRequest as JSON."""
    return json.dumps({"apiVersion": provider.version, "kind": "CredentialProviderRequest", "image": name})


def answer(provider: Provider, name: str, text: str) -> Answer:
    """Raises Invalid for anything but a CredentialProviderResponse of the requested version."""
    try:
        body = decode(text)
        if (body.get("kind"), body.get("apiVersion")) != ("CredentialProviderResponse", provider.version):
            raise Invalid(f"it answered a {body.get('kind')} of {body.get('apiVersion')}, not of {provider.version}")
        kind = body.get("cacheKeyType")
        if kind not in _KEY_TYPES:
            raise Invalid(f"cacheKeyType {kind!r} is not one of {', '.join(_KEY_TYPES)}")
        duration = body.get("cacheDuration")
        auth = {
            str(pattern): PullCredential({"username": str(one["username"]), "password": str(one["password"])})
            for pattern, one in (body.get("auth") or {}).items()
        }
        return Answer(
            auth, f"{kind}/{keys(name)[kind]}", provider.cache if duration is None else seconds(str(duration))
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"its answer is not a CredentialProviderResponse: {type(error).__name__}: {error}") from error


def _problems(one: Json, path: str) -> Iterator[str]:
    name = one.get("name")
    if not isinstance(name, str) or not name or name in (".", "..") or "/" in name or " " in name:
        yield f"{path}.name must be the name of a file in the folder of plugins"
    if one.get("apiVersion") not in _VERSIONS:
        yield f"{path}.apiVersion must be {_VERSIONS[0]}"
    images = one.get("matchImages")
    if not isinstance(images, list) or not images or not all(isinstance(image, str) and image for image in images):
        yield f"{path}.matchImages: at least one pattern is needed"
    try:
        if seconds(str(one.get("defaultCacheDuration"))) < 0:
            yield f"{path}.defaultCacheDuration must not be negative"
    except ValueError:
        yield f"{path}.defaultCacheDuration must be a duration such as 10m"
    if one.get("tokenAttributes"):
        yield f"{path}.tokenAttributes is not supported: plugins get no service account tokens from this agent"
    for key in ("args", "env"):
        if not isinstance(one.get(key) or [], list):
            yield f"{path}.{key} must be a list"


def _provider(one: Json) -> Provider:
    return Provider(
        name=one["name"],
        version=one["apiVersion"],
        images=tuple(one["matchImages"]),
        cache=seconds(str(one["defaultCacheDuration"])),
        args=tuple(str(text) for text in one.get("args") or []),
        env={str(pair["name"]): str(pair["value"]) for pair in one.get("env") or []},
    )


def _refusal(problems: list[str], place: str) -> Invalid:
    return Invalid(
        "; ".join(problems),
        obj=place,
        step="read credential provider plugins",
        action="Correct the file that --image-credential-provider-config names.",
    )
