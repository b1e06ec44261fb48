"""Statuses that the API server takes: the messages in them are cut until the whole is small enough.

Messages quote what containers, the runtime and plugins say. The API server refuses a request of more than 3 MiB, etcd
an object of more than 1.5 MiB, and every controller that watches pods receives all of it. Upstream only limits
termination messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent.pods.plan.container_status import LISTED
from nodelib.json_values import Json, compact
from nodelib.text import cut

MOST = 60 * 1024  # bytes of a status as JSON; a patch of it adds little
MOST_AFTER_REFUSAL = 8 * 1024
_CAPS = (4096, 2048, 1024, 512, 256, 128, 64)  # bytes of one message; the first is the limit of termination messages
_WORST = 6  # bytes of JSON that one character may take
_CLAIMED = "allocatedResourcesStatus"
_TOO_LARGE = ("too large", "larger than max", "too long")  # words of the API server, etcd and gRPC


def fitted(status: Json, most: int) -> Json:
    """`status` with messages of 4 KiB at most, and shorter ones where it would exceed `most` bytes.

    A status that is too large without its messages is left so. Lone surrogates, which JSON cannot have, are replaced.
    """
    messages = list(_messages(status))
    if all(one.isascii() for one in messages) and sum(map(len, messages)) * _WORST < min(most, _CAPS[0]):
        return status
    return _shortened(status, _cap(status, messages, most))


def is_too_large(code: int, message: str) -> bool:
    """Whether the API server, or etcd behind it, refused an object for its size. `code`: of HTTP."""
    return code == 413 or any(words in message.lower() for words in _TOO_LARGE)


def _cap(status: Json, messages: list[str], most: int) -> int:
    """The longest messages with which the status fits, else the shortest. A pod may have thousands of them: they are
    cut once, when it is known how far."""
    rest = _size(status) - sum(map(_size, messages))
    fitting = (cap for cap in _CAPS if rest + sum(_size(cut(one, cap)) for one in messages) <= most)
    return next(fitting, _CAPS[-1]) if rest <= most else _CAPS[-1]


def _size(value: Any) -> int:
    return len(compact(value).encode(errors="replace"))


def _messages(status: Json) -> Iterator[str]:
    """Only where a PodStatus has them: this is asked at each plan."""
    owners: list[Json] = [status, *(status.get("conditions") or [])]
    for listed in LISTED.values():
        for one in status.get(listed) or []:
            for state in (one.get("state"), one.get("lastState")):
                owners += (state or {}).values()
            for claimed in one.get(_CLAIMED) or []:
                owners += claimed.get("resources") or []
    return (one["message"] for one in owners if one and one.get("message"))


def _shortened(status: Json, cap: int) -> Json:
    found = _cut(status, cap)
    for name in ("conditions", *LISTED.values()):
        if found.get(name):
            shorten = _cut if name == "conditions" else _of_container
            found = {**found, name: [shorten(one, cap) for one in found[name]]}
    return found


def _of_container(status: Json, cap: int) -> Json:
    """What has no message stays the same value."""
    changed: Json = {}
    for name in ("state", "lastState"):
        state = status.get(name) or {}
        if any(one and one.get("message") for one in state.values()):
            changed[name] = {kind: _cut(one, cap) for kind, one in state.items()}
    if status.get(_CLAIMED):
        changed[_CLAIMED] = [
            {**claimed, "resources": [_cut(one, cap) for one in claimed.get("resources") or []]}
            for claimed in status[_CLAIMED]
        ]
    return {**status, **changed} if changed else status


def _cut(owner: Json, cap: int) -> Json:
    text = owner.get("message") if owner else None
    return {**owner, "message": cut(text, cap).encode(errors="replace").decode()} if text else owner
