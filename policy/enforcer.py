"""Keeps the kernel's table as the policies say: takes changes, plans, writes one transaction, and audits it.

Level-triggered: a sync takes whatever changed since the last one. After a failure, or when somebody else changed the
table, the next one writes everything, still in one transaction. The rules stay when this process ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.firewall.objects import Family
from nodelib.nft.wire import Message
from nodelib.runner import BoundedFrequencyRunner
from nodelib.traces.steps import NOT_TRACED, OpenSpan, step
from policy.cluster_model import ClusterPolicy
from policy.family_table import FamilyTable, Table
from policy.model import Address, Name, NodePlace, Pod, Policy, Tracked
from policy.plan.changed import Pair
from policy.plan.index import Changes, Index
from policy.plan.marks import next_generation
from policy.plan.program import Planner, Program
from policy.tracing import PolicyTracing, describe

log = logging.getLogger(__name__)

RETRY = 1.0  # seconds after a sync that failed
AUDIT = 2.0  # seconds between two audits
_FULL_SYNC_PERIOD = 3600.0
_PATIENCE = 5  # audits in a row that changes may make useless

Change = Callable[[Index], None]


class Observer(Protocol):
    """Gets how syncs go."""

    def synced(self, seconds: float, programs: Mapping[Family, Program]) -> None: ...

    def failed(self, error: Exception) -> None: ...


class Enforcer:
    """Owns the tables of a node. Nothing is written before `start()`."""

    def __init__(
        self,
        tables: Mapping[Family, Table],
        planners: Mapping[Family, Planner],
        clock: Clock,
        observer: Observer,
        generation: Callable[[], int | None] = lambda: None,
        kept: Callable[[Program], list[Message]] = lambda program: [],
        readers: Mapping[Family, Table] | None = None,
        traces: PolicyTracing | None = None,
    ) -> None:
        """`kept`: what else belongs into a table that is written anew. `readers`: the tables again, to read them while
        they are written.
        """
        self._tables = {
            family: FamilyTable(table, (readers or tables)[family], planners[family], kept)
            for family, table in tables.items()
        }
        self._clock, self._observer, self._generation = clock, observer, generation
        self._traces = traces
        self._index = Index()
        self._pending: list[Change] = []
        self._unplanned: Changes | None = None  # taken by a sync that has not planned all families, or by none
        self._started = False
        self._seen: int | None = None
        self._taken = self._done = self._marked = 0
        self._written = self._beside = self._unread = 0
        self._lock = asyncio.Lock()
        self._progress = asyncio.Condition()
        self._uids: dict[Name, str] = {}
        self.last_error = ""
        self.first_sync = asyncio.Event()
        self.runner = BoundedFrequencyRunner(
            "sync network policies",
            self.sync,
            min_interval=0,
            retry_interval=RETRY,
            max_interval=_FULL_SYNC_PERIOD,
            clock=clock,
            rest_factor=1,
        )

    @property
    def families(self) -> frozenset[Family]:
        return frozenset(self._tables)

    @property
    def programs(self) -> dict[Family, Program]:
        """What the kernel has, as far as known."""
        return {family: one.applied for family, one in self._tables.items() if one.applied is not None}

    @property
    def queued(self) -> int:
        """Changes that no sync has taken yet."""
        return len(self._pending)

    def start(self) -> None:
        """Everything has been listed: from now on rules are written."""
        self._started = True
        self.runner.poke()

    def set_pod(self, name: Name, pod: Pod | None) -> None:
        if pod is None:
            self._uids.pop(name, None)
        else:
            self._uids[name] = pod.uid
        self._take(lambda index: index.set_pod(name, pod))

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        self._take(lambda index: index.set_namespace(name, labels))

    def set_policy(self, name: Name, policy: Policy | None) -> None:
        self._take(lambda index: index.set_policy(name, policy))

    def set_cluster_policy(self, name: str, policy: ClusterPolicy | None) -> None:
        self._take(lambda index: index.set_cluster_policy(name, policy))

    def set_node(self, name: str, node: NodePlace | None) -> None:
        self._take(lambda index: index.set_node(name, node))

    def hold(self, name: Name, uid: str, addresses: tuple[Address, ...]) -> int:
        """A pod of this node has these addresses now. Returns what `written()` waits for."""
        self._take(lambda index: index.hold(name, uid, addresses))
        return self._taken

    def knows(self, name: Name, uid: str) -> bool:
        """Whether this pod, and not a former one of the same name, has been seen in the API."""
        found = self._uids.get(name)
        return found is not None and uid in ("", found)

    async def known(self, name: Name, uid: str) -> None:
        """Wait until the pod has been seen in the API."""
        async with self._progress:
            await self._progress.wait_for(lambda: self.knows(name, uid))

    async def written(self, number: int) -> None:
        """Wait until the kernel has what was taken up to `number`."""
        async with self._progress:
            await self._progress.wait_for(lambda: self._done >= number)

    async def sync(self) -> None:
        """One sync. Raises what the kernel's refusal raised; then the next one writes everything."""
        async with self._progress:
            self._progress.notify_all()
        async with self._lock:
            number = self._taken
            pending, self._pending = self._pending, []
            with self._traces.begin() if self._traces is not None else NOT_TRACED as span:
                if not self._started:
                    if span is not None and self._traces is not None:
                        self._traces.drop(span)
                    await asyncio.to_thread(self._apply, pending)
                    return
                await self._sync(pending, span)
        self.first_sync.set()
        async with self._progress:
            self._done = number
            self._progress.notify_all()

    async def _sync(self, pending: list[Change], span: OpenSpan | None) -> None:
        started = self._clock.monotonic()
        before, commits = self._generation(), self._written + self._beside
        # What others did before a table is written from scratch is gone.
        known = before == self._seen or all(one.applied is None for one in self._tables.values())
        try:
            await self._plan_and_write(pending, span)
        except BaseException as error:
            if isinstance(error, NodewrightError):
                self.last_error = str(error)
                self._observer.failed(error)
            raise
        self.last_error = ""
        self._seen = self._alone(before, self._written + self._beside - commits) if known else None
        self._observer.synced(self._clock.monotonic() - started, self.programs)

    async def _plan_and_write(self, pending: list[Change], span: OpenSpan | None) -> None:
        """A family is written before the next one is planned: planning takes longer than the kernel."""
        changes = await asyncio.to_thread(self._taken_changes, pending)
        used: set[Tracked] = set()
        pairs: list[Pair] = []
        changing = False
        try:
            for table in self._tables.values():
                with step("plan"):
                    batch = await asyncio.to_thread(self._planned, table, changes, used)
                pairs.append((table.applied, table.planned))
                changing = changing or bool(batch)
                self._written += bool(batch)
                await table.write(batch)
        finally:
            if span is not None and self._traces is not None:
                if changing:
                    await asyncio.to_thread(describe, span, len(pending), pairs)
                elif len(pairs) == len(self._tables):
                    self._traces.drop(span)
        self._index.forget(used)
        self._unplanned = None

    def _alone(self, before: int | None, commits: int) -> int | None:
        """The kernel's generation, if so many commits have led to it from that one: None if others have, too."""
        now = self._generation()
        return now if before is not None and now == before + commits else None

    async def beside(self, commit: Awaitable[None]) -> None:
        """Somebody commits to our table what is not planned: that is no reason for an audit."""
        before = self._generation()
        await commit
        self._beside += 1
        if before is not None and before == self._seen and self._generation() == before + 1:
            self._seen = before + 1

    async def audit(self, *, deep: bool) -> list[str]:
        """What somebody else changed in our tables; the next sync writes everything then. Reads nothing if nothing
        was committed since.
        """
        generation = self._generation()
        if not self._started or (generation is not None and generation == self._seen):
            return []
        # Reading takes long, and changes shall not wait for it, unless they come so fast that nothing is ever read.
        patient = self._unread < _PATIENCE
        async with self._lock:
            written = self._written
            found = {} if patient else await self._all_differences(deep)
        if patient:
            found = await self._all_differences(deep)
        async with self._lock:
            self._unread = self._unread + 1 if patient and written != self._written else 0
            if self._unread:
                return []
            for family in found:
                self._tables[family].applied = None
            if deep and not found:
                self._seen = generation
        if found:
            shown = "; ".join(f"{family}: {wrong}" for family, wrong in found.items())
            log.warning("somebody else changed our rules, they are written again: %s", shown)
            self.runner.poke()
        return list(found.values())

    async def run_audit(self) -> None:
        """Until cancelled."""
        turns = 0
        while True:
            await self._clock.sleep(AUDIT)
            turns += 1
            try:
                await self.audit(deep=turns % 5 == 0)
            except NodewrightError as error:
                log.warning("the rules could not be read: %s", error)

    async def remove(self) -> None:
        """Remove our tables: nothing is enforced any more."""
        self._started = False
        async with self._lock:
            self._written += 1
            for table in self._tables.values():
                await table.remove()

    def _take(self, change: Change) -> None:
        self._pending.append(change)
        if self._traces is not None:
            self._traces.queued()
        self._taken += 1
        self.runner.poke()

    def _apply(self, pending: list[Change]) -> None:
        for change in pending:
            change(self._index)

    def _taken_changes(self, pending: list[Change]) -> Changes:
        """In a thread, under the lock: only syncs touch the index. Those of a sync that failed are among them: a family
        that comes after the one that was refused has not been planned.
        """
        self._apply(pending)
        if self._unplanned is not None:
            self._index.put_back(self._unplanned)
        self._unplanned = self._index.take_changed()
        return self._unplanned

    def _planned(self, table: FamilyTable, changes: Changes, used: set[Tracked]) -> list[Message]:
        """The transaction of one family. What its program depends on is added to `used`."""
        batch, uses = table.plan(self._index, changes, self._next_generation)
        used |= uses
        return batch

    def _next_generation(self) -> int:
        self._marked = next_generation(self._marked, self._clock.now())
        return self._marked

    async def _all_differences(self, deep: bool) -> dict[Family, str]:
        found = {}
        for family, table in self._tables.items():
            if wrong := await table.differences(deep=deep):
                found[family] = wrong
        return found


def not_protected(pod: Name, step: str, why: str, action: str) -> Temporary:
    """The error for a pod that must not run yet."""
    return Temporary(why, obj=f"pod {pod}", step=step, action=action)
