"""FNV-1a, the hash that upstream's kubelet uses for container specs and checkpoints. Pure."""

from __future__ import annotations

_OFFSET = 2166136261
_PRIME = 16777619


def fnv1a(data: bytes, before: int = _OFFSET) -> int:
    """The 32-bit hash, as Go's hash/fnv New32a. `before`: that of the data that comes before."""
    value = before
    for byte in data:
        value = ((value ^ byte) * _PRIME) & 0xFFFFFFFF
    return value
