"""Ids, made from names: the same request has the same id, and no text of a request is ever part of a path."""

from __future__ import annotations

import hashlib
import re

from csi.model import Kind
from nodelib.plugin_apis.errors import Refused
from nodelib.text import one_line

_LONGEST = 128  # bytes of a name or an id: the specification's limit for strings
_DIGITS = 40
_PREFIX = {Kind.VOLUME: "vol", Kind.SNAPSHOT: "snap"}
_ID = {kind: re.compile(rf"{prefix}-[0-9a-f]{{{_DIGITS}}}", re.ASCII) for kind, prefix in _PREFIX.items()}
_NODE = re.compile(r"[a-z0-9.-]{1,63}", re.ASCII)
_INLINE = re.compile(rf"inline-[0-9a-f]{{{_DIGITS}}}", re.ASCII)


def id_of(kind: Kind, name: str) -> str:
    """The id of the volume or snapshot with this name. Raises Refused for a name that is missing or too long."""
    if not name:
        raise Refused("INVALID_ARGUMENT", "the name is missing")
    if len(name.encode(errors="surrogateescape")) > _LONGEST:
        raise Refused("INVALID_ARGUMENT", f"the name {one_line(name, 40)!r} has more than {_LONGEST} bytes")
    return f"{_PREFIX[kind]}-{_digest(name)}"


def own_id(handle: str) -> str:
    """The id of a volume as the kubelet names it; the handle of a pod's inline volume is the kubelet's own."""
    return handle if _ID[Kind.VOLUME].fullmatch(handle) else f"inline-{_digest(handle)}"


def is_id(kind: Kind, text: str) -> bool:
    """Whether this can be an id of ours; everything else does not exist."""
    return bool(_ID[kind].fullmatch(text)) or (kind is Kind.VOLUME and bool(_INLINE.fullmatch(text)))


def handle(kind: Kind, image_id: str, node: str) -> str:
    """As others know it. A snapshot's says on which node it is: of a content that exists already, nothing else does.

    A node whose name is too long for a label's value, where helpers look for their node, is left out.
    """
    return f"{image_id}@{node}" if kind is Kind.SNAPSHOT and _NODE.fullmatch(node) else image_id


def id_in(text: str) -> str:
    """The id in a handle, whatever node it names: an id is on one node, and on others does not exist."""
    image_id, at, node = text.partition("@")
    return image_id if at and is_id(Kind.SNAPSHOT, image_id) and _NODE.fullmatch(node) else text


def is_inline(text: str) -> bool:
    return bool(_INLINE.fullmatch(text))


def given(text: str, what: str) -> str:
    """The text. Raises Refused when it is missing."""
    if not text:
        raise Refused("INVALID_ARGUMENT", f"the {what} is missing")
    return text


def path(text: str, what: str) -> str:
    """An absolute path without "..". Raises Refused."""
    given(text, what)
    if not text.startswith("/") or "\0" in text or ".." in text.split("/") or len(text) > 4096:
        raise Refused("INVALID_ARGUMENT", f"the {what} {one_line(text, 100)!r} is not an absolute path")
    return "/" + text.strip("/")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:_DIGITS]
