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
_TOO_LARGE = ("too large", "larger than max", "too long")  # words of the API server, etcd and gRPC


def fitted(status: Json, most: int) -> Json:
    """`status` with messages of 4 KiB at most, and shorter ones where it would exceed `most` bytes.

    A status that is too large without its messages is left so. Lone surrogates, which JSON cannot have, are replaced.
    """
    messages = list(_messages(status))
    if all(one.isascii() for one in messages) and sum(map(len, messages)) * _WORST < min(most, _CAPS[0]):
        return status
    found = status
    for cap in _CAPS:
        found = _shortened(status, cap)
        if len(compact(found).encode()) <= most:
            break
    return found


def is_too_large(code: int, message: str) -> bool:
    """Whether the API server, or etcd behind it, refused an object for its size. `code`: of HTTP."""
    return code == 413 or any(words in message.lower() for words in _TOO_LARGE)


def _messages(status: Json) -> Iterator[str]:
    """Only where a PodStatus has them: this is asked at each plan."""
    owners: list[Json] = [status, *(status.get("conditions") or [])]
    for listed in LISTED.values():
        for one in status.get(listed) or []:
            for state in (one.get("state"), one.get("lastState")):
                owners += (state or {}).values()
    return (one["message"] for one in owners if one and one.get("message"))


def _shortened(value: Any, cap: int) -> Any:
    if isinstance(value, dict):
        return {
            name: _plain(cut(one, cap)) if name == "message" and isinstance(one, str) else _shortened(one, cap)
            for name, one in value.items()
        }
    return [_shortened(one, cap) for one in value] if isinstance(value, list) else value


def _plain(text: str) -> str:
    return text.encode(errors="replace").decode()
