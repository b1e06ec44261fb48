"""FNV-1a, the hash by which upstream's kubelet tells containers and checkpoints apart."""

from __future__ import annotations

_OFFSET = 2166136261
_PRIME = 16777619


def fnv1a(data: bytes) -> int:
    """32 bits, as Go's hash/fnv New32a."""
    value = _OFFSET
    for byte in data:
        value = ((value ^ byte) * _PRIME) & 0xFFFFFFFF
    return value
