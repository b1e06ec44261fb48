"""What the node's work needs of the world; the edges of this room offer it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nodelib.firewall.iptables import Tables
from nodelib.firewall.objects import Family


@dataclass(frozen=True, slots=True)
class NodeTables:
    """iptables of this machine by family. `generation`: the kernel's count of changes, None where it has none."""

    tables: Mapping[Family, Tables]
    generation: Callable[[], int | None]
