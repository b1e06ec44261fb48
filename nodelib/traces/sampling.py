"""Ids, and which traces are kept. Pure.

Every id is made from what it stands for, not at random: an agent that is killed goes on in the same trace, and whoever
reads a pod's record later finds the ids under which its spans were exported.
"""

from __future__ import annotations

import hashlib

from nodelib.traces.model import SPAN_BYTES, TRACE_BYTES

ALL = 1_000_000
_HALF = 1 << 63


def trace_id(*what: str) -> bytes:
    return _digest(what)[:TRACE_BYTES]


def span_id(trace: bytes, *what: str) -> bytes:
    return _digest((trace.hex(), *what))[:SPAN_BYTES]


def is_sampled(trace: bytes, per_million: int) -> bool:
    """By the trace's id, as TraceIDRatioBased of the Go SDK does it: all programs decide alike."""
    if per_million >= ALL:
        return True
    return int.from_bytes(trace[8:]) >> 1 < per_million * _HALF // ALL


def _digest(what: tuple[str, ...]) -> bytes:
    return hashlib.sha256("\0".join(what).encode(errors="replace")).digest()
