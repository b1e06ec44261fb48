"""Credential provider plugins: their configuration, requests and answers (KEP-2133).

Follows pkg/credentialprovider/plugin (config.go, plugin.go) and k8s.io/kubelet/pkg/apis/credentialprovider.
With tokenAttributes a plugin gets a token of the pod's service account, and its answer is for pods of that account only
(KEP-4412).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.common.model.durations import seconds
from agent.images.model.pulls import Account, AccountToken, PullCredential
from agent.images.plan.keyring import fits
from agent.images.plan.pull_records import repository
from nodelib.errors import Invalid
from nodelib.json_values import Json, decode

_CONFIG_VERSIONS = tuple(f"kubelet.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_VERSIONS = tuple(f"credentialprovider.kubelet.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_KEY_TYPES = ("Image", "Registry", "Global")


_CACHE_TYPES = ("ServiceAccount", "Token")
_ANNOTATION = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TokenAttributes:
    """What a plugin gets of the pod's service account. `account_needed`: without one it is not asked.

    `by_token`: an answer is for one pod, not for all of its service account. `required`, `optional`: annotations.
    """

    audience: str
    account_needed: bool
    by_token: bool
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Provider:
    """A plugin: its file name in the directory of plugins, and the images it is asked about. `cache` in seconds."""

    name: str
    version: str
    images: tuple[str, ...]
    cache: float
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    tokens: TokenAttributes | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Credentials by registry pattern, the cache key they are valid for, and for how many seconds; 0: not cached."""

    credentials: Mapping[str, PullCredential]
    key: str
    seconds: float


def providers(document: Any, place: str, *, tokens: bool = True) -> tuple[Provider, ...]:
    """The plugins of a decoded CredentialProviderConfig. Raises Invalid that names every problem and the file.

    `tokens`: whether plugins may ask for tokens of service accounts.
    """
    if not isinstance(document, dict) or document.get("kind") != "CredentialProviderConfig":
        raise _refusal(["kind must be CredentialProviderConfig"], place)
    problems = [] if document.get("apiVersion") in _CONFIG_VERSIONS else [f"apiVersion must be {_CONFIG_VERSIONS[0]}"]
    listed = document.get("providers")
    if not isinstance(listed, list) or not listed:
        raise _refusal([*problems, "providers: at least one is needed"], place)
    found: list[Provider] = []
    for index, one in enumerate(listed):
        path = f"providers[{index}]"
        wrong = list(_problems(one, path, tokens)) if isinstance(one, dict) else [f"{path} must be an object"]
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


def request(provider: Provider, name: str, token: str = "", annotations: Mapping[str, str] | None = None) -> str:
    """The CredentialProviderRequest as JSON."""
    body: Json = {"apiVersion": provider.version, "kind": "CredentialProviderRequest", "image": name}
    if token:
        body |= {"serviceAccountToken": token}
    if annotations:
        body |= {"serviceAccountAnnotations": dict(annotations)}
    return json.dumps(body)


def annotations_for(wanted: TokenAttributes, account: Account) -> dict[str, str] | None:
    """The annotations of the account that the plugin gets; None: it is not asked, one that it requires is missing."""
    if any(key not in account.annotations for key in wanted.required):
        return None
    keys = (*wanted.required, *wanted.optional)
    return {key: account.annotations[key] for key in keys if key in account.annotations}


def scope(wanted: TokenAttributes, account: Account, annotations: Mapping[str, str], pod_uid: str) -> str:
    """For whom an answer is: the account with these annotations, or only this pod."""
    source = account.source
    parts = [source.namespace, source.name, source.uid, dict(sorted(annotations.items()))]
    return json.dumps([*parts, pod_uid] if wanted.by_token else parts)


def of_account(found: Answer, wanted: TokenAttributes, account: Account, token: AccountToken) -> Answer:
    """The answer with whose it is. Raises Invalid for the token itself as password, unless it is cached as such."""
    if not wanted.by_token and any(one.auth.get("password") == token.text for one in found.credentials.values()):
        raise Invalid("it answered the service account token as password, which needs tokenAttributes.cacheType: Token")
    owned = {pattern: replace(one, source=account.source) for pattern, one in found.credentials.items()}
    lasting = min(found.seconds, token.seconds) if wanted.by_token else found.seconds
    return Answer(owned, found.key, lasting)


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


def _problems(one: Json, path: str, tokens: bool) -> Iterator[str]:
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
    if one.get("tokenAttributes") is not None:
        if not tokens:
            yield f"{path}.tokenAttributes needs featureGates.KubeletServiceAccountTokenForCredentialProviders"
        yield from _token_problems(one["tokenAttributes"], f"{path}.tokenAttributes", str(one.get("apiVersion")))
    for key in ("args", "env"):
        if not isinstance(one.get(key) or [], list):
            yield f"{path}.{key} must be a list"


def _token_problems(given: Any, path: str, version: str) -> Iterator[str]:
    if not isinstance(given, dict):
        yield f"{path} must be an object"
        return
    if version != _VERSIONS[0]:
        yield f"{path} is only supported for {_VERSIONS[0]}"
    audience, needed = given.get("serviceAccountTokenAudience"), given.get("requireServiceAccount")
    if not isinstance(audience, str) or not audience:
        yield f"{path}.serviceAccountTokenAudience is required"
    if not isinstance(needed, bool):
        yield f"{path}.requireServiceAccount must be true or false"
    if given.get("cacheType") not in _CACHE_TYPES:
        yield f"{path}.cacheType must be one of {', '.join(_CACHE_TYPES)}"
    keys = [(name, given.get(f"{name}ServiceAccountAnnotationKeys") or []) for name in ("required", "optional")]
    for name, listed in keys:
        place = f"{path}.{name}ServiceAccountAnnotationKeys"
        if not isinstance(listed, list) or not all(isinstance(key, str) for key in listed):
            yield f"{place} must be a list of texts"
            return
        yield from (f"{place}: {key!r} is not a key of an annotation" for key in listed if not _is_annotation(key))
        yield from (f"{place}: {key!r} is given twice" for key in {key for key in listed if listed.count(key) > 1})
    (_, required), (_, optional) = keys
    if required and needed is False:
        yield f"{path}.requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set"
    if both := sorted(set(required) & set(optional)):
        yield f"{path}: annotation keys cannot be both required and optional: {', '.join(both)}"


def _is_annotation(key: str) -> bool:
    return len(key) <= 317 and _ANNOTATION.fullmatch(key.lower()) is not None


def _tokens(given: Json | None) -> TokenAttributes | None:
    if given is None:
        return None
    return TokenAttributes(
        given["serviceAccountTokenAudience"],
        given["requireServiceAccount"],
        given["cacheType"] == "Token",
        *(tuple(given.get(f"{name}ServiceAccountAnnotationKeys") or ()) for name in ("required", "optional")),
    )


def _provider(one: Json) -> Provider:
    return Provider(
        name=one["name"],
        version=one["apiVersion"],
        images=tuple(one["matchImages"]),
        cache=seconds(str(one["defaultCacheDuration"])),
        args=tuple(str(text) for text in one.get("args") or []),
        env={str(pair["name"]): str(pair["value"]) for pair in one.get("env") or []},
        tokens=_tokens(one.get("tokenAttributes")),
    )


def _refusal(problems: list[str], place: str) -> Invalid:
    return Invalid(
        "; ".join(problems),
        obj=place,
        step="read credential provider plugins",
        action="Correct the file that --image-credential-provider-config names.",
    )
