"""Keeps pods from filling the node's table of connections, which is one for all of them and for the node itself.

Nothing is in any packet's way while there is room: two numbers are read a few times a second. When three quarters of
the table are taken, a table of rules lets each pod begin a bounded number of connections a second, at once; then the
entries are counted by a process of its own, who has more than its part (plan/shares.py) may begin few until it has
clearly less, and what it has too many is deleted. When there is room again the rules go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from cni.model import Connections, Crowding, Held, Holder, PodAddresses
from cni.plan import connection_rules as rules
from cni.plan import shares
from cni.ports import BoundsTable, ConnectionTable
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.nft.edge import NftError
from nodelib.nft.wire import Element, added

log = logging.getLogger(__name__)

_SHARING = 0.25  # seconds between two looks while the table is crowded
_UNTRACKED, _FAILED = 30.0, 5.0  # where the kernel tracks nothing; after a failure
_RECOUNT = 10.0  # seconds between two counts of a crowded table,
_AT_ONCE = 1.0  # of one that has filled again,
_IN_VAIN = 30.0  # and of one that stays full, as nobody holds too much of it that may be deleted
_CALM = 10.0  # seconds for which there must be room before the rules go

Names = Callable[[], Mapping[str, str]]  # namespace/name of the pod at each address
WhoIsWho = Callable[[], PodAddresses]  # blocking
OnCrowding = Callable[[Crowding], None]


class BoundsLost(Temporary):
    """The rules are not in the kernel any more."""


class ConnectionBounds:
    """The rules in the kernel, one table for each address family. Every call raises NftError."""

    def __init__(self, tables: Sequence[BoundsTable], bridge: str) -> None:
        self._tables, self._bridge = tables, bridge
        self._elements: dict[BoundsTable, set[Element]] = {}  # in the kernel, of the tables that are there

    async def make(self, pods: Mapping[str, str]) -> None:
        """Make the tables of the families that pods have, with no pod bounded more than any other."""
        for table in self._tables:
            found = rules.elements(table.family, pods)
            if found:
                await table.commit([*rules.table(table.family, self._bridge), *added(rules.TABLE, found)])
                self._elements[table] = found

    async def write(self, pods: Mapping[str, str], bounded: Mapping[Holder, int]) -> None:
        """Bring pods and bounds into the tables; sends nothing when nothing has changed."""
        for table, known in self._elements.items():
            wanted = rules.elements(table.family, pods, bounded)
            if wanted != known:
                await table.write(list(known - wanted), list(wanted - known))
                self._elements[table] = wanted

    async def refused(self) -> int:
        """How many packets the rules have dropped. Raises BoundsLost."""
        counted = [await table.counted(rules.CHAINS) for table in self._elements]
        if any(len(one) < len(rules.CHAINS) for one in counted):
            raise BoundsLost("somebody has removed it", obj=f"table {rules.TABLE}", action="It is made again.")
        return sum(sum(one.values()) for one in counted)

    async def remove(self) -> None:
        """Remove all of them, those of an earlier process too."""
        self._elements.clear()
        for table in self._tables:
            await table.commit(rules.removal())


class ConnectionGuard:
    """`limit`: entries that count as a full table, 0: what the kernel says. `report` is told of every change."""

    def __init__(
        self,
        kernel: ConnectionTable,
        bounds: ConnectionBounds,
        clock: Clock,
        *,
        names: Names,
        pods: WhoIsWho,
        limit: int = 0,
        report: OnCrowding = lambda now: None,
    ) -> None:
        self._kernel, self._bounds, self._clock = kernel, bounds, clock
        self._names, self._pods = names, pods
        self._limit, self._report = limit, report
        self._parts: dict[Holder, int] = {}
        self._texts: dict[Holder, str] = {}
        self._crowded = False
        self._stale = True  # a process that was killed may have left its rules
        self._next_count = self._soonest = 0.0
        self._roomy_since: float | None = None
        self._deleted = self._refused = self._refused_before = 0
        self._last_error = ""

    async def run(self) -> None:
        """Until cancelled; the rules do not stay."""
        try:
            while True:
                await self._clock.sleep(await self._survived(self._look()))
        finally:
            if self._crowded:
                with suppress(NftError):
                    await self._bounds.remove()

    async def _survived(self, look: Awaitable[float]) -> float:
        """Seconds until the next look, whatever comes of this one; a failure is logged once."""
        try:
            pause = await look
        except NodewrightError as error:
            if str(error) != self._last_error:
                log.warning("the node's table of connections is not shared out: %s", error)
            self._last_error = str(error)
            if self._crowded and isinstance(error, NftError | BoundsLost):
                # What is in the kernel is not known: it is removed, and made anew if it is needed.
                self._stale = True
                self._forget()
            return _FAILED
        self._last_error = ""
        return pause

    async def _look(self) -> float:
        found = self._kernel.usage()
        if found is None:
            return _UNTRACKED
        entries, limit = found[0], self._limit or found[1]
        if self._stale:
            await self._bounds.remove()
            self._stale = False
        if not self._crowded:
            if not shares.crowded(entries, limit):
                return shares.pause(entries, limit)
            await self._begin(entries, limit)
        now = self._clock.monotonic()
        if now >= self._next_count or (now >= self._soonest and shares.crowded(entries, limit)):
            await self._share(limit)
        elif self._room_again(entries, limit, now):
            await self._end(entries, limit)
        else:
            await self._bounds.write(self._names(), self._parts)
        return _SHARING

    async def _begin(self, entries: int, limit: int) -> None:
        """As little as ends the fill: nothing is asked of the kernel here, which is busy with it."""
        await self._bounds.make(self._names())
        self._crowded, self._next_count, self._roomy_since, self._refused_before = True, 0.0, None, self._refused
        log.warning(
            "table of connections: %d of %d entries: until there is room, each pod may begin %d connections a second, "
            "and who has more than its part fewer",
            entries,
            limit,
            rules.EACH,
        )

    async def _share(self, limit: int) -> None:
        await self._note_refused()
        pods = await asyncio.to_thread(self._pods)
        found = await self._kernel.count(pods, limit)
        shared = shares.share(found, limit, pods.names, self._parts)
        fresh = [one for one in found.held if one.holder in shared.parts and one.holder not in self._parts]
        # First the bounds: what is deleted before them comes back.
        await self._bounds.write(pods.names, shared.parts)
        self._parts = shared.parts
        self._texts = {one: text for one, text in self._texts.items() if one in shared.parts}
        for one in fresh:
            self._texts[one.holder] = shares.words(one, shared.parts[one.holder], limit)
            log.warning("%s: %s", shares.who(one.holder, pods.names), self._texts[one.holder])
        if shared.cuts:
            await self._cut(pods, limit, shared.cuts)
        now = self._clock.monotonic()
        in_vain = not fresh and shares.crowded(found.entries - sum(one.total for one in shared.cuts), limit)
        self._soonest = now + (_IN_VAIN if in_vain else _AT_ONCE)
        self._next_count = now + (_IN_VAIN if in_vain else _RECOUNT)
        await self._note_refused()
        limited = {shares.who(one, pods.names): text for one, text in self._texts.items()}
        self._report(Crowding(True, limited, self._deleted, self._refused))

    async def _cut(self, pods: PodAddresses, limit: int, cuts: Sequence[Held]) -> None:
        left: Connections = await self._kernel.count(pods, limit, cuts)
        self._deleted += left.deleted
        log.warning("table of connections: %d deleted, %d left", left.deleted, left.entries)

    def _room_again(self, entries: int, limit: int, now: float) -> bool:
        """Whether there has been room for long enough."""
        calm = shares.roomy(entries, limit) or (not self._parts and not shares.crowded(entries, limit))
        if not calm:
            self._roomy_since = None
        elif self._roomy_since is None:
            self._roomy_since = now
        return self._roomy_since is not None and now - self._roomy_since >= _CALM

    async def _end(self, entries: int, limit: int) -> None:
        await self._note_refused()
        await self._bounds.remove()
        log.info(
            "table of connections: %d of %d entries: there is room again, no pod is bounded (%d packets were refused)",
            entries,
            limit,
            self._refused - self._refused_before,
        )
        self._forget()

    def _forget(self) -> None:
        self._crowded, self._parts, self._texts = False, {}, {}
        self._report(Crowding(deleted=self._deleted, refused=self._refused))

    async def _note_refused(self) -> None:
        self._refused = self._refused_before + await self._bounds.refused()
