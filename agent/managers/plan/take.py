"""Which of the free CPUs to take: as close to each other as possible, and where the fewest stay free.

Follows takeByTopologyNUMAPacked of pkg/kubelet/cm/cpumanager/cpu_assignment.go: whole NUMA nodes and sockets first
(the bigger of the two before the smaller), then caches if they are preferred, whole cores, single threads; among
equals the one with the fewest free CPUs, then the one with the lowest number.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.managers.model.cpus import Cpus, CpuTopology
from nodelib.errors import Invalid


def take(topology: CpuTopology, free: Cpus, count: int, *, spread: bool = False, uncore: bool = False) -> Cpus:
    """`count` of `free`. `spread`: on as many cores as possible; `uncore`: behind one last-level cache if possible.

    Raises Invalid when too few CPUs are free.
    """
    accumulator = _Accumulator(topology, free, count, spread)
    if accumulator.needed < 1:
        return frozenset()
    check_enough(free, count)
    steps = [accumulator.take_whole_groups]
    if uncore:
        steps.append(accumulator.take_caches)
    if not spread:
        steps.append(accumulator.take_cores)
    steps.append(accumulator.take_threads)
    for step in steps:
        step()
        if accumulator.needed < 1:
            return accumulator.taken
    raise Invalid("failed to allocate cpus")


def check_enough(free: Cpus, count: int) -> None:
    """Raises Invalid with upstream's message."""
    if count > len(free):
        raise Invalid(f"not enough cpus available to satisfy request: requested={count}, available={len(free)}")


def sorted_numas(topology: CpuTopology, free: Cpus) -> list[int]:
    """NUMA nodes that have free CPUs, in the order in which CPUs are taken from them."""
    return _Accumulator(topology, free, 0, False).numas()


class _Accumulator:
    """The CPUs that are still free and the number still needed (upstream's cpuAccumulator)."""

    def __init__(self, topology: CpuTopology, free: Cpus, count: int, spread: bool) -> None:
        self._topology, self._free, self._spread = topology, free, spread
        self.needed, self.taken = count, frozenset[int]()
        self._numa_first = len(topology.sockets) >= len(topology.numas)

    def take_whole_groups(self) -> None:
        if self._numa_first:
            self._take_numas()
            self._take_sockets()
        else:
            self._take_sockets()
            self._take_numas()

    def _take_numas(self) -> None:
        for numa in self.numas():
            whole = self._topology.numas[numa]
            if whole <= self._free and self.needed >= len(whole):
                self._take(whole)

    def _take_sockets(self) -> None:
        for socket in self._sockets():
            whole = self._topology.sockets[socket]
            if whole <= self._free and self.needed >= len(whole):
                self._take(whole)

    def take_caches(self) -> None:
        """Whole caches, then a part of one cache that has all the remaining CPUs."""
        for uncore in self._uncores():
            if self.needed >= self._topology.per_uncore:
                self._take_whole_caches()
            if self.needed >= 1:
                self._take_part_of(uncore)
            if self.needed < 1:
                return

    def _take_whole_caches(self) -> None:
        for uncore in self._uncores():
            whole = self._topology.uncores[uncore]
            if whole <= self._free and self.needed >= len(whole):
                self._take(whole)

    def _take_part_of(self, uncore: int) -> None:
        per_core = self._topology.per_core
        wanted = -(-self.needed // per_core)
        inside = self._topology.grouped(self._free, "uncore").get(uncore, frozenset())
        cores = sorted(self._topology.grouped(inside, "core"))[:wanted]
        found = sorted(cpu for cpu in self._free if self._topology.by_id[cpu].core in cores)
        if self.needed % 2 and per_core > 1 and len(found) > self.needed:
            found = found[:-1]  # one thread of the last core is enough
        if len(found) == self.needed:
            self._take(frozenset(found))

    def take_cores(self) -> None:
        for core in self._cores():
            whole = self._topology.cores[core]
            if whole <= self._free and self.needed >= len(whole):
                self._take(whole)

    def take_threads(self) -> None:
        for cpu in self._threads():
            self._take(frozenset({cpu}))
            if self.needed < 1:
                return

    def numas(self) -> list[int]:
        if self._numa_first:
            return self._sorted("numa")
        return _unique(one for socket in self._sockets() for one in self._sorted("numa", "socket", socket))

    def _sockets(self) -> list[int]:
        if self._numa_first:
            return _unique(one for numa in self.numas() for one in self._sorted("socket", "numa", numa))
        return self._sorted("socket")

    def _uncores(self) -> list[int]:
        return _unique(one for numa in self.numas() for one in self._sorted("uncore", "numa", numa))

    def _cores(self) -> list[int]:
        if self._numa_first:
            return _unique(one for socket in self._sockets() for one in self._sorted("core", "socket", socket))
        return _unique(one for numa in self.numas() for one in self._sorted("core", "numa", numa))

    def _threads(self) -> list[int]:
        groups, order = ("socket", self._sockets()) if self._spread else ("core", self._cores())
        members = self._topology.grouped(self._free, groups)
        return [cpu for one in order for cpu in sorted(members[one])]

    def _sorted(self, level: str, inside: str = "", which: int = 0) -> list[int]:
        """Groups with free CPUs, those with the fewest free CPUs first. `inside`, `which`: only in one larger group."""
        groups = self._topology.grouped(self._free, level)
        if inside:
            there = {cpu for cpu in self._free if getattr(self._topology.by_id[cpu], inside) == which}
            groups = {key: group for key, group in groups.items() if group & there}
        return sorted(groups, key=lambda key: (len(groups[key]), key))

    def _take(self, cpus: Cpus) -> None:
        self.taken |= cpus
        self._free -= cpus
        self.needed -= len(cpus)


def _unique(found: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(found))
