"""Reads and writes release.json, and says what a release lacks. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from controlplane.prebuilt.model import DISTRIBUTION, FORMAT, MANIFEST, Manifest, Packed, Program
from nodelib.errors import Invalid

LARGEST = 1 << 20  # bytes of release.json
_LARGEST_FILE = 2 << 30
_NAME = re.compile(r"[a-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_PART = re.compile(r"nodewright_binaries(?:_[0-9]{1,2})?", re.ASCII)
_KEY = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]{0,254}", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9.+_-]{1,80}", re.ASCII)


def text(manifest: Manifest) -> str:
    """release.json."""
    document = asdict(manifest)
    return json.dumps({"format": FORMAT, **document}, indent=1, sort_keys=True) + "\n"


def parse(content: bytes, origin: str) -> Manifest:
    """release.json as a value. Raises Invalid for one that is damaged, or of another format."""
    try:
        document = json.loads(content) if len(content) <= LARGEST else None
        if not isinstance(document, dict):
            raise ValueError("it is not an object of at most 1 MiB")
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {str(document['format'])[:20]}, and this version reads {FORMAT}")
        return _manifest(document)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Invalid(
            f"{MANIFEST} cannot be used: {error!s:.200}",
            obj=origin,
            step="read the release",
            action=f"Fetch it again, or install {DISTRIBUTION} of the same version as nodewright.",
        ) from error


def _manifest(given: dict[str, Any]) -> Manifest:
    programs = given["programs"]
    images = given["images"]
    if not isinstance(programs, list) or not isinstance(images, dict) or len(programs) + len(images) > 200:
        raise ValueError("programs or images are not lists")
    return Manifest(
        version=_text(given["version"], _WORD),
        commit=_text(given["commit"], _WORD),
        kubernetes=_text(given["kubernetes"], _WORD),
        architecture=_text(given["architecture"], _WORD),
        programs=tuple(_program(one) for one in programs),
        images={_text(name, _IMAGE): _text(key, _KEY) for name, key in images.items()},
        archive=_packed(given["archive"]) if given["archive"] is not None else None,
    )


def _program(given: Mapping[str, Any]) -> Program:
    return Program(
        _text(given["name"], _NAME),
        _text(given["key"], _KEY),
        _size(given["size"]),
        _text(given["sha256"], _DIGEST),
        _packed(given["packed"]),
    )


def _packed(given: Mapping[str, Any]) -> Packed:
    part, file = _text(given["part"], _PART), _text(given["file"], _NAME)
    return Packed(part, file, _size(given["size"]), _text(given["sha256"], _DIGEST))


def _text(value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{str(value)[:60]!r} is not what belongs there")
    return value


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST_FILE:
        raise ValueError(f"{str(value)[:30]} is not a size")
    return value


def unmatched(manifest: Manifest, version: str, kubernetes: str, architecture: str, missing: Iterable[str]) -> str:
    """Why a release does not serve this version of nodewright, "" if it does.

    `missing`: the programs that it has not, as this version would build them.
    """
    if manifest.architecture != architecture:
        return f"it is for {manifest.architecture}, and this machine is {architecture}"
    if manifest.kubernetes != kubernetes:
        return f"it has Kubernetes {manifest.kubernetes}, and this is nodewright for {kubernetes}"
    if names := sorted(missing):
        return f"it was made by nodewright {manifest.version}, whose {', '.join(names)} are not those of {version}"
    return ""
