"""How many packets policies have refused, from the kernel's own counters: they count what is not reported too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from nodelib.firewall.objects import Family
from policy.drops.plan import reported
from policy.model import Direction, Name
from policy.plan.program import Program

Refused = dict[tuple[Name, Direction], int]


class Table(Protocol):
    """What is needed of our nftables table in one family (nodelib.nft.edge.NftTable)."""

    async def counted(self, chains: Iterable[str]) -> dict[str, int]: ...


class RefusedCounts:
    """A packet that several policies might have allowed counts for each of them."""

    def __init__(self, tables: Mapping[Family, Table], programs: Callable[[], Mapping[Family, Program]]) -> None:
        self._tables, self._programs = tables, programs
        self._last: dict[tuple[Family, str], int] = {}
        self._lock = asyncio.Lock()

    async def more(self) -> Refused:
        """Packets refused since the last call. Raises NftError."""
        found: Refused = {}
        async with self._lock:
            for family, program in self._programs().items():
                counts = await self._tables[family].counted((*program.groups, *program.denials))
                for group, count in counts.items():
                    last = self._last.get((family, group), 0)
                    # Rules that were written anew count from zero.
                    self._add(found, program, group, count - last if count >= last else count)
                kept = {one: count for one, count in self._last.items() if one[0] is not family}
                self._last = kept | {(family, group): count for group, count in counts.items()}
        return found

    @staticmethod
    def _add(found: Refused, program: Program, group: str, count: int) -> None:
        direction = reported.direction(group)
        if direction is None or not count:
            return
        denied = program.denials.get(group)
        for name in program.groups.get(group, ()) if denied is None else (Name("", denied),):
            found[name, direction] = found.get((name, direction), 0) + count
