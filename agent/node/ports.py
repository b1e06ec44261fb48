"""What the node's work needs of the world; the edges of this room offer it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.node.model import WatchedChains
from nodelib.firewall.iptables import Tables
from nodelib.firewall.objects import Family


@dataclass(frozen=True, slots=True)
class NodeTables:
    """iptables of this machine by family. `generation`: the kernel's count of changes, None where it has none.

    `fingerprint`: how these chains look in the kernel, to be compared; None where only the tools can tell. It starts no
    process. Raises NodewrightError.
    """

    tables: Mapping[Family, Tables]
    generation: Callable[[], int | None]
    fingerprint: Callable[[Sequence[WatchedChains]], Awaitable[object | None]]
