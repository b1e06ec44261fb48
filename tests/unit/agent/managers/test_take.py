"""Which CPUs are taken, on machines of several shapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.managers.model.cpus import CpuTopology, format_cpus, parse_cpus
from agent.managers.plan.distribute import distribute
from agent.managers.plan.take import take
from nodelib.errors import Invalid
from tests.unit.agent.managers.machines import (
    CACHES,
    CACHES_SMT,
    DUAL,
    QUAD_NUMA,
    SMT,
    TWO,
    WIDE_NUMA,
    machine,
)

ALL = (TWO, SMT, DUAL, QUAD_NUMA, WIDE_NUMA, CACHES, CACHES_SMT)


@pytest.mark.parametrize(
    ("topology", "free", "count", "expected"),
    [
        pytest.param(SMT, "0-7", 1, "0", id="one thread of the first core"),
        pytest.param(SMT, "0-7", 2, "0,4", id="a whole core"),
        pytest.param(SMT, "1-7", 1, "4", id="the thread that is left over of a core"),
        pytest.param(SMT, "1-7", 3, "1,4-5", id="a whole core, then what is left over"),
        pytest.param(SMT, "0-7", 8, "0-7", id="everything"),
        pytest.param(DUAL, "0-11", 6, "0,2,4,6,8,10", id="a whole socket"),
        pytest.param(DUAL, "0-11", 8, "0-2,4,6-8,10", id="a socket and a core of the other"),
        pytest.param(DUAL, "1-5,7-11", 1, "2", id="the socket with less left"),
        pytest.param(DUAL, "1-11", 6, "1,3,5,7,9,11", id="the socket that is still whole"),
        pytest.param(QUAD_NUMA, "0-79", 20, "0-9,40-49", id="a whole NUMA node"),
        pytest.param(QUAD_NUMA, "10-39,50-79", 20, "10-19,50-59", id="the rest of a socket that was begun"),
        pytest.param(QUAD_NUMA, "0-79", 60, "0-29,40-69", id="a socket and a NUMA node"),
        pytest.param(QUAD_NUMA, "1-39,41-79", 60, "10-39,50-79", id="what is whole, not what was begun"),
        pytest.param(WIDE_NUMA, "0-31", 16, "0-7,16-23", id="a NUMA node that is two sockets"),
    ],
)
def test_packed(topology: CpuTopology, free: str, count: int, expected: str) -> None:
    assert format_cpus(take(topology, parse_cpus(free), count)) == expected


@pytest.mark.parametrize(
    ("topology", "free", "count", "expected"),
    [
        pytest.param(CACHES, "0-15", 4, "0-3", id="one whole cache"),
        pytest.param(CACHES, "2-15", 4, "4-7", id="a whole one, not one that was begun"),
        pytest.param(CACHES, "2-15", 2, "2-3", id="the part that is just enough"),
        pytest.param(CACHES_SMT, "1-7,9-15", 10, "1,4-7,9,12-15", id="whole one first, then a core of the other"),
        pytest.param(CACHES_SMT, "2-3,10-11,4-7,12-15", 6, "4-6,12-14", id="all behind one"),
        pytest.param(CACHES_SMT, "0-15", 3, "0-1,8", id="an odd number"),
    ],
)
def test_cpus_behind_one_cache(topology: CpuTopology, free: str, count: int, expected: str) -> None:
    assert format_cpus(take(topology, parse_cpus(free), count, uncore=True)) == expected


def test_across_cores() -> None:
    # By socket and number, so that threads of one core come last.
    assert format_cpus(take(SMT, SMT.all, 4, spread=True)) == "0-3"
    assert format_cpus(take(DUAL, DUAL.all - {0}, 3, spread=True)) == "2,4,6"


@pytest.mark.parametrize(
    ("count", "group", "expected"),
    [
        pytest.param(8, 1, "0-3,40-43", id="fits into one node"),
        pytest.param(24, 1, "0-5,10-15,40-45,50-55", id="evenly on two"),
        pytest.param(42, 1, "0-6,10-16,20-26,40-46,50-56,60-66", id="evenly on three"),
        pytest.param(26, 2, "0-6,10-15,40-46,50-55", id="whole cores, one node has one more"),
    ],
)
def test_distributed(count: int, group: int, expected: str) -> None:
    assert format_cpus(distribute(QUAD_NUMA, QUAD_NUMA.all, count, group=group)) == expected


def test_distributed_on_one_socket_if_that_is_wanted() -> None:
    free = QUAD_NUMA.all - QUAD_NUMA.numas[0]
    found = distribute(QUAD_NUMA, free, 30, by_socket=True)
    assert set(QUAD_NUMA.grouped(found, "numa")) == {2, 3}


def test_too_few_free_cpus() -> None:
    text = "not enough cpus available to satisfy request: requested=3, available=1"
    for way in (take, distribute):
        with pytest.raises(Invalid, match=text):
            way(TWO, frozenset({1}), 3)


@given(st.data())
def test_any_number_of_any_free_cpus(data: st.DataObject) -> None:
    topology = data.draw(st.sampled_from(ALL))
    free = frozenset(data.draw(st.sets(st.sampled_from(sorted(topology.all)))))
    count = data.draw(st.integers(0, len(free)))
    spread, uncore, by_socket = (data.draw(st.booleans()) for _ in range(3))
    group = data.draw(st.sampled_from([1, topology.per_core]))
    packed = take(topology, free, count, spread=spread, uncore=uncore)
    spaced = distribute(topology, free, count, group=group, spread=spread, by_socket=by_socket)
    for found in (packed, spaced):
        assert len(found) == count
        assert found <= free


@given(st.data())
def test_whole_cores_of_whole_cores(data: st.DataObject) -> None:
    topology = data.draw(st.sampled_from(ALL))
    cores = data.draw(st.sets(st.sampled_from(sorted(topology.cores)), min_size=1))
    free = frozenset(cpu for core in cores for cpu in topology.cores[core])
    count = data.draw(st.integers(1, len(cores))) * topology.per_core
    assert topology.siblings(take(topology, free, count)) == take(topology, free, count)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("", set()), ("0", {0}), ("0-2,7", {0, 1, 2, 7}), (" 3,1-2\n", {1, 2, 3})],
)
def test_cpu_sets_as_text(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus
    assert parse_cpus(format_cpus(cpus)) == cpus


@pytest.mark.parametrize("text", ["a", "1-", "2-1", "-1", "1,,2", "0-99999999"])
def test_invalid_cpu_sets(text: str) -> None:
    with pytest.raises(Invalid):
        parse_cpus(text)


def test_a_machine_with_numa_nodes_of_different_size() -> None:
    topology = machine(numas=2, cores=6)
    free = topology.all - {0, 1}
    assert format_cpus(take(topology, free, 1)) == "2"
    assert format_cpus(distribute(topology, free, 4)) == "2-5"
