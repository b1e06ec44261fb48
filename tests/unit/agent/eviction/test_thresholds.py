"""Which thresholds are met, for how long, and what the node says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.eviction.model import EvictionPolicy, EvictionState, Observation, Observations, Round, Share, Threshold
from agent.eviction.plan import signals, thresholds
from agent.stats.model import FsUsage
from tests.unit.agent.eviction.usage import MIB, node

MEMORY = Threshold("memory.available", thresholds.share("100Mi"))
SOFT = Threshold("nodefs.available", thresholds.share("20%"), 30)


def seen(**available: int) -> Observations:
    names = {"memory": "memory.available", "disk": "nodefs.available", "pids": "pid.available"}
    return {names[key]: Observation(amount, 1000 * MIB) for key, amount in available.items()}


@pytest.mark.parametrize(
    ("settings", "expect"),
    [
        pytest.param({"hard": {"memory.available": "100Mi"}}, {("memory.available", 0.0, 100 * MIB, 0)}, id="quantity"),
        pytest.param({"hard": {"nodefs.available": "10%"}}, {("nodefs.available", 0.0, 100 * MIB, 0)}, id="percent"),
        pytest.param({"hard": {"nodefs.available": "0%", "pid.available": "100%"}}, set(), id="switched off"),
        pytest.param({"hard": {"containerfs.available": "10%"}}, set(), id="containerfs is the same as the others"),
        pytest.param(
            {"soft": {"pid.available": "5"}, "grace": {"pid.available": 90.0}},
            {("pid.available", 90.0, 5, 0)},
            id="soft with its grace",
        ),
        pytest.param(
            {"hard": {"memory.available": "1Gi"}, "reclaim": {"memory.available": "10%"}},
            {("memory.available", 0.0, 1024 * MIB, 100 * MIB)},
            id="minimum reclaim",
        ),
        pytest.param(
            {"hard": {"memory.available": "1Mi"}, "enforce_pods": True},
            {("memory.available", 0.0, MIB, 0), ("allocatableMemory.available", 0.0, MIB, 0)},
            id="the pods' own limit is watched too",
        ),
    ],
)
def test_configured(settings: dict[str, Any], expect: set[tuple[str, float, int, int]]) -> None:
    given: dict[str, Any] = {"hard": {}, "soft": {}, "grace": {}, "reclaim": {}, "enforce_pods": False, **settings}
    found = thresholds.thresholds(
        given["hard"], given["soft"], given["grace"], given["reclaim"], enforce_pods=given["enforce_pods"]
    )
    whole = 1000 * MIB
    shown = {(one.signal, one.grace, one.least.of(whole), one.reclaim.of(whole) if one.reclaim else 0) for one in found}
    assert shown == expect


@pytest.mark.parametrize(
    ("available", "expect"), [(100 * MIB - 1, True), (100 * MIB, False), (0, True)], ids=["less", "exactly", "none"]
)
def test_a_threshold_is_met_below_it(available: int, expect: bool) -> None:
    assert bool(thresholds.met([MEMORY], seen(memory=available))) is expect


def test_what_cannot_be_observed_is_not_met() -> None:
    assert thresholds.met([MEMORY, SOFT], {}) == []


def rounds(policy: EvictionPolicy, *measured: tuple[float, Observations]) -> list[Round]:
    state, found = EvictionState(), []
    for now, observed in measured:
        found.append(thresholds.next_round(policy, state, observed, now))
        state = found[-1].state
    return found


def test_a_soft_threshold_waits_for_its_grace_and_starts_anew_when_it_was_left() -> None:
    policy = EvictionPolicy((SOFT,), transition=0)
    low, well = seen(disk=0), seen(disk=900 * MIB)
    found = rounds(policy, (0, low), (29, low), (30, low), (40, well), (50, low), (79, low), (80, low))
    assert [bool(one.due) for one in found] == [False, False, True, False, False, False, True]
    assert [bool(one.conditions) for one in found] == [True, True, True, False, True, True, True]


def test_a_condition_outlasts_its_cause_by_the_transition_period() -> None:
    policy = EvictionPolicy((MEMORY,), transition=60)
    found = rounds(policy, (0, seen(memory=0)), (10, seen(memory=900 * MIB)), (59, seen()), (60, seen()))
    assert [one.conditions for one in found] == [("MemoryPressure",)] * 3 + [()]
    assert [bool(one.due) for one in found] == [True, False, False, False]


def test_what_was_acted_upon_is_met_until_its_minimum_reclaim_is_there() -> None:
    policy = EvictionPolicy((replace(MEMORY, reclaim=Share(Share().amount + 50 * MIB)),), transition=0)
    available = [(0.0, 90), (10.0, 120), (20.0, 150), (30.0, 120)]
    found = rounds(policy, *((now, seen(memory=left * MIB)) for now, left in available))
    assert [bool(one.due) for one in found] == [True, True, False, False]


def test_memory_comes_first() -> None:
    hard = replace(SOFT, grace=0.0)
    found = thresholds.next_round(EvictionPolicy((hard, MEMORY)), EvictionState(), seen(memory=0, disk=0), 0)
    assert [one.signal for one in found.due] == ["memory.available", "nodefs.available"]
    assert found.conditions == ("MemoryPressure", "DiskPressure")


def test_a_node_near_its_threshold_is_measured_often() -> None:
    assert thresholds.is_close([MEMORY], seen(memory=149 * MIB))
    assert not thresholds.is_close([MEMORY], seen(memory=150 * MIB))


def test_observed() -> None:
    found = signals.observe(node(memory=300 * MIB))
    assert found["memory.available"] == Observation(300 * MIB, 1024 * MIB)
    assert found["allocatableMemory.available"] == Observation(412 * MIB, 512 * MIB)
    assert found["pid.available"] == Observation(100, 1000)
    assert found["nodefs.available"] == found["imagefs.available"] == Observation(500, 1000)
    assert found["nodefs.inodesFree"] == Observation(50, 100)


def test_memory_set_aside_for_huge_pages_is_neither_there_nor_available() -> None:
    found = signals.observe(replace(node(memory=300 * MIB), huge_pages=200 * MIB))
    assert found["memory.available"] == Observation(100 * MIB, 824 * MIB)


def test_a_file_system_that_counts_no_inodes_has_not_run_out_of_them() -> None:
    assert "nodefs.inodesFree" not in signals.observe(node(fs=FsUsage(1, 1000, 500, device=1)))


@pytest.mark.parametrize(("device", "expect"), [(1, False), (2, True)], ids=["shared", "its own"])
def test_the_disk_of_images(device: int, expect: bool) -> None:
    assert signals.has_image_fs(node(image_fs=FsUsage(1, 10, 10, device=device))) is expect
