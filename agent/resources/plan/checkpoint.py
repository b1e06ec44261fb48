"""The text of allocated_pods_state and actuated_pods_state, as upstream's kubelet writes it.

Follows pkg/kubelet/allocation/state (checkpoint.go) and pkg/kubelet/checkpointmanager/checksum:
either agent can continue with the files of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent.resources.model import Allocation
from nodelib.errors import Invalid
from nodelib.fnv import fnv1a
from nodelib.json_values import compact
from nodelib.json_values import decode as decode_json

ALLOCATED = "allocated_pods_state"
ACTUATED = "actuated_pods_state"
_DUMP = b"(string)"


def encode(entries: Mapping[str, Allocation]) -> str:
    """`entries` by pod UID."""
    # In pieces: the interpreter does nothing else while it writes one, and a pod may have a megabyte of resources.
    value, escaped = fnv1a(_DUMP), list[str]()
    for piece in _pieces(entries):
        value = fnv1a(piece.encode(), value)
        escaped.append(compact(piece)[1:-1])
    return f'{{"data":"{"".join(escaped)}","checksum":{value}}}'


def size(entries: Mapping[str, Allocation]) -> int:
    """How many amounts and names of claims there are."""
    listed = (one for entry in entries.values() for one in (*entry.containers.values(), entry.whole))
    return sum(len(part or ()) for one in listed for part in (one or {}).values())


def _pieces(entries: Mapping[str, Allocation]) -> Iterator[str]:
    """The JSON of all entries."""
    yield '{"entries":{' if entries else "{"
    for number, (uid, one) in enumerate(sorted(entries.items())):
        found = {
            "ContainerResources": dict(sorted(one.containers.items())),
            "PodLevelResources": one.whole,
            "EmptyDirVolumeLimits": None,
        }
        yield f"{',' if number else ''}{compact(uid)}:{compact(found)}"
    yield "}}" if entries else "}"


def decode(text: str) -> dict[str, Allocation]:
    """Raises Invalid for a corrupted file or one of another shape."""
    try:
        outer = decode_json(text)
        data, recorded = outer["data"], int(outer["checksum"])
        if checksum(data) != recorded:
            raise Invalid(
                f"its checksum is {recorded}, but that of its content is {checksum(data)}", step="read checkpoint"
            )
        return {uid: _allocation(entry) for uid, entry in (decode_json(data).get("entries") or {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"this is not a checkpoint: {type(error).__name__}: {error}", step="read checkpoint") from error


def checksum(data: str) -> int:
    """FNV-1a, 32 bits, of Go's dump of the string: "(string)" and the string."""
    return fnv1a(_DUMP + data.encode())


def _allocation(entry: dict[str, Any]) -> Allocation:
    containers = {str(name): dict(one or {}) for name, one in (entry.get("ContainerResources") or {}).items()}
    whole = entry.get("PodLevelResources")
    return Allocation(containers, None if whole is None else dict(whole))
