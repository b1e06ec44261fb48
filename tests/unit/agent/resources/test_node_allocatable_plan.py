"""The limits of the cgroups of the system and of the agent."""

from __future__ import annotations

import pytest

from agent.resources.plan.memory_qos import MemoryQos
from agent.resources.plan.node_allocatable import Reservation, reserved

KUBE = Reservation("kube-reserved", {"cpu": "500m", "memory": "1Gi", "pid": "1000"}, "/kube.slice")
SYSTEM = Reservation("system-reserved", {"memory": "1Gi", "ephemeral-storage": "1Gi"}, "system/")


@pytest.mark.parametrize(
    ("enforce", "version", "expect"),
    [
        pytest.param({"pods"}, 1, {}, id="pods alone"),
        pytest.param(
            {"pods", "kube-reserved"},
            1,
            {
                "/kube.slice": [
                    ("cpu", "cpu.shares", "512"),
                    ("memory", "memory.limit_in_bytes", str(1 << 30)),
                    ("pids", "pids.max", "1000"),
                ]
            },
            id="v1",
        ),
        pytest.param(
            {"kube-reserved"},
            2,
            {
                "/kube.slice": [
                    ("cpu", "cpu.weight", "59"),
                    ("memory", "memory.max", str(1 << 30)),
                    ("memory", "memory.min", str(1 << 30)),
                    ("pids", "pids.max", "1000"),
                ]
            },
            id="v2",
        ),
        pytest.param(
            {"kube-reserved-compressible"},
            2,
            {"/kube.slice": [("cpu", "cpu.weight", "59")]},
            id="cpu alone",
        ),
        pytest.param(
            {"system-reserved"},
            2,
            {"/system": [("memory", "memory.max", str(1 << 30)), ("memory", "memory.min", str(1 << 30))]},
            id="no cpu: shares stay",
        ),
        pytest.param({"system-reserved-compressible"}, 2, {"/system": []}, id="nothing of it is compressible"),
    ],
)
def test_reserved(enforce: set[str], version: int, expect: dict[str, list[tuple[str, str, str]]]) -> None:
    assert {one.path: list(one.writes) for one in reserved(enforce, (SYSTEM, KUBE), version, MemoryQos())} == expect


def test_slices_get_the_same_as_properties() -> None:
    (one,) = reserved({"kube-reserved"}, (KUBE,), 2, MemoryQos())
    assert one.properties == ("CPUWeight=59", f"MemoryMax={1 << 30}", f"MemoryMin={1 << 30}", "TasksMax=1000")
