"""The table of network policies of one family: what is planned for it, what is in the kernel, and what differs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from nodelib.nft.wire import Message
from policy.model import Tracked
from policy.plan import layout, marks
from policy.plan.difference import changed_chains, difference, removal, renewed, whole
from policy.plan.index import Changes, Index
from policy.plan.program import Planner, Program

_SHOWN = 3


class Table(Protocol):
    """What is needed of our nftables table in one family (nodelib.nft.edge.NftTable)."""

    async def commit(self, batch: list[Message]) -> None: ...

    async def elements(self, sets: tuple[str, ...]) -> dict[str, set[bytes]] | None: ...

    async def digests(self, chains: Collection[str] | None = None) -> dict[str, str]: ...


class FamilyTable:
    """`applied`: what our writes have left in the kernel, None: not known.

    `reader`: the table again, to read it while it is written. `kept`: what else belongs into a table that is written
    anew.
    """

    def __init__(self, table: Table, reader: Table, planner: Planner, kept: Callable[[Program], list[Message]]) -> None:
        self._table, self._reader, self._planner, self._kept = table, reader, planner, kept
        self.applied: Program | None = None
        self.planned: Program | None = None
        self._digests: dict[str, str] = {}  # of each chain of `applied`, the generation of marks aside
        self._other: list[str] | None = None  # chains that `planned` lacks or has with other rules; None: all are new
        self._generation = 1

    def plan(
        self, index: Index, changes: Changes, next_generation: Callable[[], int]
    ) -> tuple[list[Message], set[Tracked]]:
        """The transaction, and what the planned program depends on."""
        now, uses = self._planner.plan(index, changes, self._generation)
        self.planned, before = now, self.applied
        batch = whole(now) if before is None else difference(before, now)
        self._other = None if before is None else changed_chains(before, now)
        if batch:
            # Also after a failure: nobody knows what a packet has met.
            self._generation = next_generation()
            batch += renewed(now, self._generation)
        return batch, uses

    async def write(self, batch: list[Message]) -> None:
        """Commit what plan() has returned. Raises the kernel's refusal; then `applied` is not known."""
        planned = self.planned
        if batch and planned is not None:
            known, self.applied = self.applied, None
            await self._table.commit(batch if known is not None else batch + self._kept(planned))
            await self._read_back()
        self.applied = planned

    async def remove(self) -> None:
        self.applied = None
        await self._table.commit(removal())

    async def differences(self, *, deep: bool) -> str:
        """What somebody else has changed, "" for nothing. `deep`: also of the elements of sets."""
        applied = self.applied
        if applied is None:
            return ""
        if _counted(await self._reader.digests()) != self._digests:
            return f"the rules of table {layout.TABLE} are not ours any more"
        if deep:
            # What pods have learnt comes and goes by itself.
            ours = [name for name, shape in applied.sets.items() if not shape.most]
            found = await self._reader.elements(tuple(ours)) or {}
            wrong = [name for name in ours if set(applied.elements[name]) != found.get(name)]
            if wrong:
                return f"the elements of {', '.join(wrong[:_SHOWN])} are not ours"
        return ""

    async def _read_back(self) -> None:
        """The kernel's own form of what has just been written, to compare it with in audits."""
        if self._other is None:
            self._digests = _counted(await self._table.digests())
        elif self._other:
            kept = {name: digest for name, digest in self._digests.items() if name not in set(self._other)}
            self._digests = kept | _counted(await self._table.digests(self._other))


def _counted(digests: Mapping[str, str]) -> dict[str, str]:
    """Without the chains that each transaction writes."""
    return {name: digest for name, digest in digests.items() if name not in marks.CHAINS}
