"""Decide when to read, list and watch one object that pods refer to, with as few requests as possible.

A get is answered at once; a list may wait 100 ms for the server's cache to catch up (KEP-2340), and a watch takes a
connection. So an object is read first, and watched only if its users are still there a moment later.
Where there are too many (work/watch_places.py), the rest is looked at now and then, as often as upstream's kubelet
looks at what has changed, or less often if that would be more than a thousand a minute of one namespace.
"""

from __future__ import annotations

from enum import Enum

from nodelib.json_values import Json

LINGER = 20.0  # seconds to keep an unused watch: the next pod of a namespace needs kube-root-ca.crt too
LOOK = 60.0  # seconds between two looks at an object without a watch, at least
_IN_A_LOOK = 1000
WATCH_DELAY = 0.5  # seconds between read and watch: a pod that ends at once never causes a watch


class Step(Enum):
    """READ: get it; LOOK: the same after a pause, as there is no place for a watch; LIST: for the version to watch
    from; WATCH: from there; STOP: it can never change.
    """

    READ = "read"
    LOOK = "look"
    LIST = "list"
    WATCH = "watch"
    STOP = "stop"


def next_step(*, known: bool, listed: str, current: Json | None, placed: bool = True) -> Step:
    """`placed`: there is a place for its watch; `listed`: the version that a watch can go on from, "" for none;
    `current` None: it does not exist.
    """
    if not known:
        return Step.READ
    if not placed:
        return Step.STOP if (current or {}).get("immutable") else Step.LOOK
    if not listed:
        return Step.LIST
    return Step.STOP if (current or {}).get("immutable") else Step.WATCH


def waits_before_watch(current: Json | None) -> bool:
    """Whether to wait a moment before watching; not for a missing object, whose users wait for it to appear."""
    return current is not None


def must_notify(*, changed: bool, known_before: bool, get_failed: bool) -> bool:
    """Whether to notify users: of every change, but of the first answer only if a get() gave up waiting for it."""
    return get_failed or (changed and known_before)


def pause_before_look(waiting: int, chance: float) -> float:
    """Seconds. `waiting`: objects of the namespace without a watch; `chance`: 0 to 1, so that they spread."""
    return LOOK * max(1.0, waiting / _IN_A_LOOK) * (1 + chance / 2)
