"""Which registry credentials match an image. Follows pkg/credentialprovider (keyring.go, config.go)."""

from __future__ import annotations

import base64
import binascii
import contextlib
import fnmatch
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TypeVar
from urllib.parse import urlsplit

import orjson

from agent.common.plan.secrets import decode_secret
from agent.images.model.pulls import PullCredential, SecretSource
from agent.images.plan.pull_records import hashed
from nodelib.errors import Invalid
from nodelib.json_values import Json

T = TypeVar("T")

_DEFAULT_REGISTRY = "index.docker.io"
_JSON_KEY, _LEGACY_KEY = ".dockerconfigjson", ".dockercfg"


def read_secret(secret: Json, most: int) -> tuple[dict[str, Json], int]:
    """Registry -> CRI AuthConfig of a pull secret of either type, and how many more than `most` it has. Raises Invalid.

    Blocking: the Secret may be large.
    """
    data = secret.get("data") or {}
    name = f"Secret {secret['metadata'].get('namespace')}/{secret['metadata']['name']}"
    for key in (_JSON_KEY, _LEGACY_KEY):
        if key not in data:
            continue
        try:
            config = orjson.loads(decode_secret(data[key]))
        except (orjson.JSONDecodeError, Invalid) as error:
            raise Invalid(f"{key} is not JSON", obj=name, action="Create the Secret again with kubectl.") from error
        entries = config.get("auths") if key == _JSON_KEY and isinstance(config, dict) else config
        if not isinstance(entries, dict):
            return {}, 0
        found = {registry: entry for registry, entry in entries.items() if isinstance(entry, dict)}
        read = {registry: _auth(entry) for registry, entry in islice(found.items(), most)}
        return read, len(found) - len(read)
    return {}, 0


def of_secret(secret: Json, most: int) -> tuple[dict[str, PullCredential], int]:
    """The credentials of a pull secret by registry, each with its source; as read_secret()."""
    meta = secret["metadata"]
    place = (str(meta.get("namespace", "")), str(meta["name"]), str(meta.get("uid", "")))
    read, left_out = read_secret(secret, most)
    found = {registry: PullCredential(auth, SecretSource(*place, hashed(auth))) for registry, auth in read.items()}
    return found, left_out


def of_files(files: Iterable[tuple[str, bytes]]) -> dict[str, PullCredential]:
    """The logins of the first file (path, content) that can be parsed: config.json or the older .dockercfg."""
    for path, content in files:
        try:
            config = orjson.loads(content)
        except orjson.JSONDecodeError:
            continue
        entries = (
            config if path.endswith(_LEGACY_KEY) else config.get("auths", {}) if isinstance(config, dict) else None
        )
        if isinstance(entries, dict):
            found = {registry: entry for registry, entry in entries.items() if isinstance(entry, dict)}
            return {registry: PullCredential(_auth(entry)) for registry, entry in found.items()}
    return {}


def match(image: str, configs: Iterable[Mapping[str, T]]) -> list[T]:
    """Credentials that match `image`, the most specific registry path first."""
    credentials: dict[str, list[T]] = {}
    for config in configs:
        for registry, auth in config.items():
            # As upstream: one malformed name ("https://[") must not hide all other logins.
            with contextlib.suppress(ValueError):
                credentials.setdefault(_index_key(registry), []).append(auth)
    found = [auth for key in sorted(credentials, reverse=True) if fits(key, image) for auth in credentials[key]]
    if found or not _is_default_registry(image):
        return found
    return credentials.get(_DEFAULT_REGISTRY, [])


def _auth(entry: Json) -> Json:
    username, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if entry.get("auth"):
        try:
            text = base64.b64decode(str(entry["auth"]).strip(), validate=True).decode()
        except (binascii.Error, ValueError):
            text = ""
        if ":" in text:
            username, _, password = text.partition(":")
    made = {"username": username, "password": password}
    for key, name in (("identitytoken", "identity_token"), ("registrytoken", "registry_token")):
        if entry.get(key):
            made[name] = str(entry[key])
    return made


def _index_key(registry: str) -> str:
    parsed = urlsplit(registry if re.match(r"https?://", registry) else f"https://{registry}")
    path = parsed.path
    if path.startswith(("/v1/", "/v2/")):
        path = path[3:]
    return parsed.netloc + (path if path not in ("", "/") else "")


def fits(key: str, image: str) -> bool:
    """Whether the image matches a registry pattern: globs within the parts of its name, a port, the start of a path."""
    pattern, target = urlsplit(f"//{key}"), urlsplit(f"//{image}")
    pattern_host, _, pattern_port = pattern.netloc.partition(":")
    host, _, port = target.netloc.partition(":")
    parts, wanted = host.split("."), pattern_host.split(".")
    return (
        pattern_port == port
        and len(parts) == len(wanted)
        and target.path.startswith(pattern.path)
        and all(fnmatch.fnmatchcase(part, glob) for part, glob in zip(parts, wanted, strict=True))
    )


def _is_default_registry(image: str) -> bool:
    first, slash, _ = image.partition("/")
    if not first:
        return False
    return not slash or first in ("docker.io", _DEFAULT_REGISTRY) or not re.search(r"[.:]", first)
