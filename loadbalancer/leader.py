"""Gives addresses to Services and nodes to addresses, while this daemon leads.

First the table is written, naming the version that it replaces, and only then the status of Services: a leader that was
deposed and does not know it cannot give anything away. Nothing is kept in memory that the API does not have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from loadbalancer.leases import LeaseApi, version
from loadbalancer.model import Address, Name, Problem, Service, Table
from loadbalancer.plan import table as tables
from loadbalancer.plan.allocate import Allocation, allocate
from loadbalancer.plan.index import Index
from loadbalancer.plan.place import Endpoints, Nodes, place
from loadbalancer.plan.pool import Pool
from loadbalancer.plan.writes import StatusWrite, status_writes
from nodelib.clock import Clock
from nodelib.errors import Permanent
from nodelib.json_values import Json, object_or_empty
from nodelib.kube.errors import ApiError
from nodelib.threads import in_thread_if

log = logging.getLogger(__name__)

_WRITES_AT_ONCE = 8
# Services, and their ports; planning for more takes longer than the event loop may wait.
_MANY, _MANY_PORTS = 500, 20_000
FRESH = 10.0  # seconds for which an address that had no node follows the most ready endpoints


class Observer(Protocol):
    """Gets what the leader found."""

    def problem(self, service: Service, problem: Problem) -> None: ...

    def given(self, service: Service, addresses: tuple[Address, ...]) -> None: ...

    def counted(self, taken: int, pending: int, moves: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _Basis:
    """What a round was planned from: the same leads to the same."""

    term: int
    change: int
    table: int
    nodes: Nodes


class Leader:
    """`folder`: the path of the Leases."""

    def __init__(
        self, client: LeaseApi, folder: str, identity: str, pool: Pool, index: Index, observer: Observer, clock: Clock
    ) -> None:
        self._client, self._folder, self._identity = client, folder, identity
        self._pool, self._index, self._observer, self._clock = pool, index, observer, clock
        self._placed: dict[Address, float] = {}  # when each fresh address was given a node
        self._stored: Json = {}
        self._read: tuple[Json, Table] = self._stored, Table()  # what the stored one says
        self._term = self._changes = 0
        self._done: _Basis | None = None
        self._sent: dict[str, tuple[str, tuple[Address, ...]]] = {}
        self._reported: dict[str, Problem] = {}

    def changed(self) -> None:
        """A Service or endpoint is another one now."""
        self._changes += 1

    def observe(self, stored: Json) -> None:
        """The table as the watch brought it, {} when it was deleted."""
        if not stored or version(stored) >= version(self._stored):
            self._stored = stored

    @property
    def table(self) -> Table:
        if self._read[0] is not self._stored:
            self._read = self._stored, tables.of_lease(self._stored)
        return self._read[1]

    async def round(self, term: int, nodes: Nodes, leads: Callable[[], bool]) -> None:
        """Bring table and Services to what they should be. Raises NodewrightError; then it is to be called again."""
        if term != self._term:
            await self._load()
            self._sent, self._reported, self._term = {}, {}, term
        basis = _Basis(term, self._changes, version(self._stored), nodes)
        if basis == self._done:
            return
        before = self.table
        services = list(self._index.services.values())
        owned = {address: row.uids for address, row in before.rows.items()}
        endpoints = {one.name: self._index.endpoints(one.name) for one in services if one.local}
        allocation, wanted = await in_thread_if(
            _are_many(services), _decide, services, before, self._pool, nodes, endpoints, self._fresh()
        )
        if wanted != before or (services and not self._shows_pool()):
            if not leads():
                return
            await self._store(wanted)
            now = self._clock.monotonic()
            self._placed |= dict.fromkeys(_placed(wanted) - _placed(before), now)
            self._log_moves(before, wanted)
        await self._write_statuses(services, allocation, owned, leads)
        self._report(services, allocation.problems)
        self._observer.counted(len(wanted.rows), len(allocation.problems), _moves(before, wanted))
        if wanted == before:
            self._done = basis

    def _shows_pool(self) -> bool:
        """Whether it stands beside the table, also beside an empty one: who asks why a Service has no address needs
        it."""
        notes = object_or_empty(object_or_empty(self._stored.get("metadata")).get("annotations"))
        return notes.get(tables.POOL) == str(self._pool)

    def _fresh(self) -> frozenset[Address]:
        since = self._clock.monotonic() - FRESH
        self._placed = {one: at for one, at in self._placed.items() if at > since}
        return frozenset(self._placed)

    async def _load(self) -> None:
        try:
            self._stored = await self._client.get(f"{self._folder}/{tables.LEASE}")
        except ApiError as error:
            if not error.is_not_found:
                raise
            self._stored = {}

    async def _store(self, wanted: Table) -> None:
        text = tables.to_text(wanted)
        if len(text) > tables.LARGEST:
            raise Permanent(
                f"the table has {len(text)} bytes, and {tables.LARGEST} are the most",
                obj=f"Lease {tables.LEASE}",
                step="give addresses to Services",
                action="Use fewer Services of type LoadBalancer, or shorter names of nodes.",
            )
        body: Json = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": tables.LEASE, "annotations": {tables.ANNOTATION: text, tables.POOL: str(self._pool)}},
            "spec": {"holderIdentity": self._identity},
        }
        if not self._stored:
            self._stored = await self._client.post(self._folder, body)
            return
        body["metadata"]["resourceVersion"] = str(version(self._stored))
        try:
            self._stored = await self._client.put(f"{self._folder}/{tables.LEASE}", body)
        except ApiError as error:
            if error.is_conflict or error.is_not_found:
                await self._load()
            raise

    async def _write_statuses(
        self,
        services: list[Service],
        allocation: Allocation,
        before: Mapping[Address, tuple[str, ...]],
        leads: Callable[[], bool],
    ) -> None:
        room = asyncio.Semaphore(_WRITES_AT_ONCE)

        async def write(one: StatusWrite) -> None:
            async with room:
                if leads():
                    await self._write_status(one)

        there = {one.uid for one in services}
        self._sent = {uid: key for uid, key in self._sent.items() if uid in there}
        wanted = status_writes(services, allocation, before)
        due = [one for one in wanted if self._sent.get(one.service.uid) != _key(one)]
        results = await asyncio.gather(*map(write, due), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _write_status(self, one: StatusWrite) -> None:
        service = one.service
        path = f"/api/v1/namespaces/{service.name.namespace}/services/{service.name.name}/status"
        try:
            await self._client.patch(path, one.patch)
        except ApiError as error:
            # It is gone, another one, or changed: the watch brings what it is now, and a new round follows.
            if not (error.is_not_found or error.is_conflict):
                raise
            log.debug("Service %s: %s", service.name, error)
        else:
            log.info("Service %s has %s", service.name, ", ".join(map(str, one.addresses)) or "no address")
            if one.addresses:
                self._observer.given(service, one.addresses)
        self._sent[service.uid] = _key(one)

    def _report(self, services: list[Service], problems: Mapping[str, Problem]) -> None:
        for one in services:
            problem = problems.get(one.uid)
            if problem is not None and self._reported.get(one.uid) != problem:
                log.warning("Service %s: %s", one.name, problem.note)
                self._observer.problem(one, problem)
        self._reported = dict(problems)

    def _log_moves(self, before: Table, wanted: Table) -> None:
        for address, row in wanted.rows.items():
            old = before.rows[address].node if address in before.rows else ""
            if row.node != old:
                log.info("%s is announced by %s%s", address, row.node or "no node", f", not by {old}" if old else "")


def _decide(
    services: list[Service],
    before: Table,
    pool: Pool,
    nodes: Nodes,
    endpoints: Mapping[Name, Endpoints],
    fresh: frozenset[Address],
) -> tuple[Allocation, Table]:
    allocation = allocate(services, {address: row.uids for address, row in before.rows.items()}, pool)
    announced = {address: row.node for address, row in before.rows.items()}
    placed = place(allocation.owners, announced, nodes, lambda name: endpoints.get(name, Endpoints()), fresh)
    return allocation, tables.table(allocation.owners, placed)


def _are_many(services: list[Service]) -> bool:
    return len(services) > _MANY or sum(len(one.ports) for one in services) > _MANY_PORTS


def _placed(table: Table) -> set[Address]:
    return {address for address, row in table.rows.items() if row.node}


def _key(one: StatusWrite) -> tuple[str, tuple[Address, ...]]:
    return one.service.version, one.addresses


def _moves(before: Table, wanted: Table) -> int:
    old = {address: row.node for address, row in before.rows.items() if row.node}
    return sum(1 for address, row in wanted.rows.items() if old.get(address, row.node) != row.node)
