"""What is done next about one object that pods refer to: the least that keeps its users right.

A get is answered at once; a list may wait 100 ms for the server's cache to catch up (KEP-2340), and a watch costs a
connection: so an object is read first, and watched only if its users are still there a moment later.
"""

from __future__ import annotations

from enum import Enum

from agent.common.model.pods import Json

LINGER = 20.0  # seconds; pods that follow each other in a namespace find kube-root-ca.crt known
SETTLE = 0.5  # seconds; pods that end at once never cost a watch connection


class Move(Enum):
    """READ: get it; LIST: for the version to watch from; WATCH: from there; REST: it can never change."""

    READ = "read"
    LIST = "list"
    WATCH = "watch"
    REST = "rest"


def next_move(*, known: bool, listed: str, current: Json | None) -> Move:
    """`listed`: the version that a watch can go on from, "" for none; `current` None: it does not exist."""
    if not known:
        return Move.READ
    if not listed:
        return Move.LIST
    return Move.REST if (current or {}).get("immutable") else Move.WATCH


def settles(current: Json | None) -> bool:
    """Whether to wait a moment before watching: an object that is not there is wanted as soon as it is."""
    return current is not None


def is_news(*, changed: bool, known_before: bool, disappointed: bool) -> bool:
    """Whether users are told: of a change, and of the first answer only if one of them went away without."""
    return disappointed or (changed and known_before)
