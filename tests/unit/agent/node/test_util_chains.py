"""makeIPTablesUtilChains: what is written where something is missing, what stays, and how soon a flush is mended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress

import pytest

from agent.node.ports import NodeTables
from agent.node.work.util_chains import CHECK, UNCOUNTED_CHECK, UtilChains
from nodelib.errors import NotFound
from nodelib.firewall import localnet
from nodelib.firewall.objects import BUILT_IN, Family, Rule, TableContent
from proxy.plan.iptables.fixed import TABLES
from proxy.plan.iptables.sync import drift
from tests.fakes.clock import FakeClock, settle
from tests.fakes.fake_iptables import FakeIptables
from tests.unit.proxy.build import CONTEXT, desired, installed

FOREIGN = Rule(("-s", "192.0.2.0/24", "-j", "DROP"))
EVERY = {"mangle": ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"], "nat": ["KUBE-KUBELET-CANARY"]}


class Kernel(FakeIptables):
    """One family, which also counts how often it is read."""

    reads = 0

    def __init__(self, family: Family = Family.IPV4) -> None:
        super().__init__(family)
        self.before_read: Callable[[], object] = lambda: None

    async def save(self, table: str, *, only: Collection[str] | None = None) -> TableContent:
        self.before_read()
        return await super().save(table, only=only)

    async def chain_exists(self, table: str, chain: str) -> bool:
        self.reads += 1
        return await super().chain_exists(table, chain)


class Machine:
    """iptables of both families; the kernel counts their changes unless `counts` is False."""

    def __init__(self) -> None:
        self.four, self.six = Kernel(), Kernel(Family.IPV6)
        self.counts, self.absent, self.has_fingerprints = True, False, True
        self.foreign = 0

    async def find(self) -> NodeTables:
        if self.absent:
            raise NotFound("cannot start: No such file or directory", obj="IPv4 iptables")
        return NodeTables({Family.IPV4: self.four, Family.IPV6: self.six}, self._generation, self._fingerprint)

    def _generation(self) -> int | None:
        return len(self.four.inputs) + len(self.six.inputs) + self.foreign if self.counts else None

    async def _fingerprint(self, _: object) -> object:
        return repr([one.tables for one in (self.four, self.six)]) if self.counts and self.has_fingerprints else None

    def flush(self) -> None:
        for kernel in (self.four, self.six):
            kernel.flush()
        self.foreign += 1

    @property
    def whole(self) -> bool:
        """Whether everything is there that upstream's kubelet makes."""
        four, six = (
            {table: sorted(name for name in one.tables[table] if name.startswith("KUBE-")) for table in one.tables}
            for one in (self.four, self.six)
        )
        ours = four | {"raw": []} == EVERY | {"filter": ["KUBE-FIREWALL", "KUBE-KUBELET-CANARY"], "raw": []}
        theirs = six | {"raw": []} == EVERY | {"filter": ["KUBE-KUBELET-CANARY"], "raw": []}
        return ours and theirs and self.guarded

    @property
    def guarded(self) -> bool:
        filters = self.four.tables["filter"]
        leads = all(
            [rule.target for rule in filters[chain]].count("KUBE-FIREWALL") == 1 for chain in ("INPUT", "OUTPUT")
        )
        return leads and list(filters.get("KUBE-FIREWALL", ())).count(localnet.DROP_MARTIANS) == 1


@asynccontextmanager
async def kept(machine: Machine) -> AsyncIterator[FakeClock]:
    """The chains of `machine` are kept while this is open."""
    clock = FakeClock()
    task = asyncio.create_task(UtilChains(machine.find, clock).run())
    try:
        await settle()
        yield clock
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_everything_of_upstreams_kubelet_is_there() -> None:
    machine = Machine()
    async with kept(machine):
        assert machine.whole


@pytest.mark.parametrize(("counts", "within"), [(True, CHECK), (False, UNCOUNTED_CHECK)], ids=["nft", "legacy"])
async def test_a_flush_is_mended(counts: bool, within: float) -> None:
    machine = Machine()
    machine.counts = counts
    async with kept(machine) as clock:
        for _ in range(3):
            machine.flush()
            await clock.advance(within)
            assert machine.whole


@pytest.mark.parametrize("chain", ["INPUT", "OUTPUT", "KUBE-FIREWALL"])
async def test_a_single_rule_that_is_gone_comes_back(chain: str) -> None:
    """Upstream misses this one: it looks for its canary only."""
    machine = Machine()
    async with kept(machine) as clock:
        machine.four.tables["filter"][chain].clear()
        machine.foreign += 1
        await clock.advance(CHECK)
        assert machine.whole


async def test_nothing_is_read_as_long_as_nobody_writes() -> None:
    machine = Machine()
    async with kept(machine) as clock:
        await clock.advance(2 * CHECK)
        before = machine.four.reads
        await clock.advance(1000 * CHECK)
        assert machine.four.reads == before
        assert len(machine.four.inputs) == 1


@pytest.mark.parametrize("fingerprints", [True, False])
async def test_changes_of_others_elsewhere_start_no_process(fingerprints: bool) -> None:
    machine = Machine()
    machine.has_fingerprints = fingerprints
    async with kept(machine) as clock:
        await clock.advance(2 * CHECK)
        before = machine.four.reads
        for _ in range(10):
            machine.foreign += 1
            await clock.advance(CHECK)
        assert (machine.four.reads == before) is fingerprints


async def test_what_goes_while_it_is_looked_at_comes_back() -> None:
    """The fingerprint is read before the tools look: what changes in between does not count as seen."""
    machine = Machine()
    async with kept(machine) as clock:
        lost = machine.four.tables["filter"].pop("KUBE-FIREWALL")
        machine.four.before_read = lambda: machine.four.tables["filter"].__setitem__("KUBE-FIREWALL", lost)
        machine.foreign += 1
        await clock.advance(CHECK)
        machine.four.before_read = lambda: None
        del machine.four.tables["filter"]["KUBE-FIREWALL"]
        machine.foreign += 1
        await clock.advance(CHECK)
        assert machine.whole


async def test_rules_of_others_in_the_chain_stay() -> None:
    machine = Machine()
    machine.four.tables["filter"]["KUBE-FIREWALL"] = [FOREIGN]
    async with kept(machine):
        assert machine.four.tables["filter"]["KUBE-FIREWALL"][0] == FOREIGN
        assert machine.whole


async def test_kubelet_and_proxy_write_it_once() -> None:
    machine = Machine()
    machine.four.tables = installed().tables
    async with kept(machine) as clock:
        assert machine.guarded
        assert not [text for text in machine.four.inputs if "KUBE-FIREWALL" in text]
        kernel = {table: await machine.four.save(table, only=BUILT_IN[table]) for table in TABLES}
        assert drift(desired(), CONTEXT, kernel, large=False) == []
        await clock.advance(CHECK)
        assert machine.guarded


async def test_a_machine_without_iptables_is_left_alone() -> None:
    machine = Machine()
    machine.absent = True
    async with kept(machine) as clock:
        await clock.advance(1000 * CHECK)
        assert not machine.four.inputs


async def test_a_refused_write_is_tried_again() -> None:
    machine = Machine()
    machine.four.fail_next = 2
    async with kept(machine) as clock:
        assert not machine.four.inputs
        await clock.advance(2 * CHECK)
        assert machine.whole
