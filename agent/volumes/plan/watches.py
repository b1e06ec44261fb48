"""Decide when to read, list and watch one object that pods refer to, with as few requests as possible.

A get is answered at once; a list may wait 100 ms for the server's cache to catch up (KEP-2340), and a watch takes a
connection. So an object is read first, and watched only if its users are still there a moment later.
"""

from __future__ import annotations

from enum import Enum

from nodelib.json_values import Json

LINGER = 20.0  # seconds to keep an unused watch: the next pod of a namespace needs kube-root-ca.crt too
WATCH_DELAY = 0.5  # seconds between read and watch: a pod that ends at once never causes a watch


class Step(Enum):
    """READ: get it; LIST: for the version to watch from; WATCH: from there; STOP: it can never change."""

    READ = "read"
    LIST = "list"
    WATCH = "watch"
    STOP = "stop"


def next_step(*, known: bool, listed: str, current: Json | None) -> Step:
    """`listed`: the version that a watch can go on from, "" for none; `current` None: it does not exist."""
    if not known:
        return Step.READ
    if not listed:
        return Step.LIST
    return Step.STOP if (current or {}).get("immutable") else Step.WATCH


def waits_before_watch(current: Json | None) -> bool:
    """Whether to wait a moment before watching; not for a missing object, whose users wait for it to appear."""
    return current is not None


def must_notify(*, changed: bool, known_before: bool, get_failed: bool) -> bool:
    """Whether to notify users: of every change, but of the first answer only if a get() gave up waiting for it."""
    return get_failed or (changed and known_before)
