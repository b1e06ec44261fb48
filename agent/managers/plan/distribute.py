"""CPUs distributed evenly over as few NUMA nodes as possible (option distribute-cpus-across-numa, KEP-2902).

Follows takeByTopologyNUMADistributed of pkg/kubelet/cm/cpumanager/cpu_assignment.go: of all smallest combinations of
nodes, the one with the least standard deviation of free CPUs afterwards. Where four or more nodes are needed, upstream
may take another combination than the best one it found, because slices of its combinations share one array.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from agent.managers.model.cpus import Cpus, CpuTopology
from agent.managers.plan.take import check_enough, sorted_numas, take
from nodelib.errors import Invalid


@dataclass(frozen=True, slots=True)
class _Split:
    """`each` CPUs of every node of `numas`, the remainder in turn from `rest`; a lower `balance` is better."""

    numas: tuple[int, ...]
    each: int
    rest: tuple[int, ...]
    balance: float
    one_socket: bool = False


def distribute(
    topology: CpuTopology, free: Cpus, count: int, *, group: int = 1, spread: bool = False, by_socket: bool = False
) -> Cpus:
    """`count` of `free`, in groups of `group` (threads of one core). Raises Invalid when too few CPUs are free."""
    if count < 1:
        return frozenset()
    if count % group:
        return take(topology, free, count, spread=spread)
    check_enough(free, count)
    numas = sorted_numas(topology, free)
    inside = topology.grouped(free, "numa")
    groups = _ceil(count, group)
    per_numa = _ceil(_ceil(len(topology.cpus), group), len(topology.numas))
    for size in range(_ceil(groups, per_numa), min(groups, len(inside)) + 1):
        split = _best(topology, inside, numas, size, count, group, by_socket)
        if split is not None:
            return _take_split(topology, inside, split, count, group, spread)
    return take(topology, free, count, spread=spread)


def _best(
    topology: CpuTopology,
    inside: Mapping[int, Cpus],
    numas: Sequence[int],
    size: int,
    count: int,
    group: int,
    by_socket: bool,
) -> _Split | None:
    best: _Split | None = None
    for combo in combinations(numas, size):
        if best is not None and best.balance == 0 and (not by_socket or best.one_socket):
            break
        one_socket = by_socket and len(topology.sockets_of(combo)) <= 1
        found = _split(inside, numas, combo, count, group, by_socket, one_socket)
        if found is None:
            continue
        if best is None or _better(found, best):
            best = found
    return best


def _better(one: _Split, other: _Split) -> bool:
    if one.one_socket != other.one_socket:
        return one.one_socket
    return one.balance < other.balance


def _split(
    inside: Mapping[int, Cpus],
    numas: Sequence[int],
    combo: tuple[int, ...],
    count: int,
    group: int,
    by_socket: bool,
    one_socket: bool,
) -> _Split | None:
    """None: this combination has too few CPUs."""
    have = {numa: len(inside[numa]) for numa in numas}
    if sum(have[numa] // group for numa in combo) * group < count:
        return None
    each = count // len(combo) // group * group
    if by_socket:
        each = min([each, *(have[numa] // group * group for numa in combo)])
    if any(have[numa] < each for numa in combo):
        return None
    left = {**have, **{numa: have[numa] - each for numa in combo}}
    remainder = count - each * len(combo)
    if not remainder:
        return _Split(combo, each, (), _deviation(left), one_socket)
    able = [numa for numa in combo if left[numa] >= group]
    best: _Split | None = None
    for size in range(len(able), 0, -1):
        for rest in combinations(able, size):
            after = _after_remainder(left, rest, remainder, group)
            if after is None:
                continue
            balance = _deviation(after)
            if best is None or balance < best.balance:
                best = _Split(combo, each, rest, balance, one_socket)
    return best


def _after_remainder(left: Mapping[int, int], rest: Sequence[int], remainder: int, group: int) -> dict[int, int] | None:
    """Free CPUs by node after the remainder is taken in turn; None: there are too few."""
    after = dict(left)
    if sum(after[numa] // group for numa in rest) * group < remainder:
        return None
    while remainder > 0:
        for numa in rest:
            if remainder > 0 and after[numa] >= group:
                after[numa] -= group
                remainder -= group
    return after


def _take_split(
    topology: CpuTopology, inside: Mapping[int, Cpus], split: _Split, count: int, group: int, spread: bool
) -> Cpus:
    free, taken = dict(inside), frozenset[int]()

    def take_of(numa: int, some: int) -> None:
        nonlocal taken
        found = take(topology, free[numa], some, spread=spread)
        free[numa] -= found
        taken |= found

    for numa in split.numas:
        take_of(numa, split.each)
    while len(taken) < count:
        before = len(taken)
        for numa in split.rest:
            if len(taken) < count and len(free[numa]) >= group:
                take_of(numa, group)
        if len(taken) == before:
            raise Invalid(f"accounting error, not enough CPUs allocated, remaining: {count - before}")
    return taken


def _deviation(free: Mapping[int, int]) -> float:
    """Rounded to three digits, so that equal distributions compare as equal."""
    mean = _rounded(sum(free.values()) / len(free))
    return _rounded(math.sqrt(sum((one - mean) ** 2 for one in free.values()) / len(free)))


def _ceil(number: int, by: int) -> int:
    return -(-number // by)


def _rounded(number: float) -> float:
    return math.floor(number * 1000 + 0.5) / 1000
