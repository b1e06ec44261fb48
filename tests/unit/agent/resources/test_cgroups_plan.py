"""Numbers and names of cgroups: the cases of upstream's helpers_linux_test and cgroup_manager tests."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.common.plan.demand import Qos
from agent.resources.plan import cgroups as plan
from agent.resources.plan.cgroups import Limits, Policy
from agent.resources.plan.container_limits import Machine, container_resources, sandbox_resources
from agent.resources.plan.memory_qos import Kept
from agent.resources.plan.swap import Swap
from nodelib.errors import Invalid
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.unit.agent.common.test_demand import asks

MIB = 1 << 20


@pytest.mark.parametrize(
    ("milli", "expect"), [(0, 2), (1, 2), (2, 2), (100, 102), (500, 512), (1000, 1024), (300_000, 262144)]
)
def test_shares(milli: int, expect: int) -> None:
    assert plan.shares(milli) == expect


@pytest.mark.parametrize(
    ("milli", "period", "expect"),
    [
        (0, 100_000, 0),
        (5, 100_000, 1000),
        (9, 100_000, 1000),
        (10, 100_000, 1000),
        (200, 100_000, 20_000),
        (1500, 100_000, 150_000),
        (200, 5000, 1000),
    ],
)
def test_quota(milli: int, period: int, expect: int) -> None:
    assert plan.quota(milli, period) == expect


@pytest.mark.parametrize(
    ("shares", "expect"), [(0, 1), (2, 1), (3, 2), (102, 17), (512, 59), (1024, 100), (2048, 174), (262144, 10000)]
)
def test_weight_as_runc_and_crun_convert(shares: int, expect: int) -> None:
    assert plan.weight(shares) == expect


@given(st.integers(2, 262144), st.integers(2, 262144))
def test_weight_never_swaps_an_order(one: int, other: int) -> None:
    assert 1 <= plan.weight(one) <= 10000
    assert (one <= other) <= (plan.weight(one) <= plan.weight(other))


@pytest.mark.parametrize(
    ("size", "text"), [(2 * MIB, "2MB"), (1 << 30, "1GB"), (64 << 10, "64KB"), (512 * MIB, "512MB")]
)
def test_hugepage_names(size: int, text: str) -> None:
    assert plan.hugepage_size_text(size) == text


def limits(*containers: Json, policy: Policy | None = None, **spec: Any) -> Limits:
    return plan.limits_of_pod(pod(*containers, **spec), policy or Policy())


BOTH = {"cpu": "200m", "memory": "200Mi"}


@pytest.mark.parametrize(
    ("found", "expect"),
    [
        pytest.param(limits(asks()), Limits(cpu_shares=2), id="best effort"),
        pytest.param(
            limits(asks(requests={"cpu": "100m", "memory": "100Mi"})), Limits(cpu_shares=102), id="requests only"
        ),
        pytest.param(
            limits(asks(requests={"cpu": "100m"}, limits=BOTH)),
            Limits(cpu_shares=102, cpu_quota=20_000, cpu_period=100_000, memory=200 * MIB),
            id="burstable with limits",
        ),
        pytest.param(
            limits(asks("a", {"cpu": "100m"}, BOTH), asks("b", {"cpu": "100m"})),
            Limits(cpu_shares=204),
            id="one container without limits",
        ),
        pytest.param(
            limits(asks("a", {"cpu": "100m"}, BOTH), initContainers=[asks("i", {"cpu": "1"})]),
            Limits(cpu_shares=1024),
            id="an init container without limits",
        ),
        pytest.param(
            limits(asks(requests=BOTH, limits=BOTH)),
            Limits(cpu_shares=204, cpu_quota=20_000, cpu_period=100_000, memory=200 * MIB),
            id="guaranteed",
        ),
        pytest.param(
            limits(asks(requests=BOTH, limits=BOTH), policy=Policy(cpu_quota=False)),
            Limits(cpu_shares=204, cpu_quota=-1, cpu_period=100_000, memory=200 * MIB),
            id="quota switched off",
        ),
        pytest.param(
            limits(asks(requests=BOTH, limits=BOTH), policy=Policy(cpu_period=5000)),
            Limits(cpu_shares=204, cpu_quota=1000, cpu_period=5000, memory=200 * MIB),
            id="other period",
        ),
        pytest.param(limits(asks(), policy=Policy(pids=100)), Limits(cpu_shares=2, pids=100), id="pids"),
        pytest.param(
            limits(asks(requests={"cpu": "100m"}), resources={"limits": {"memory": "1Gi"}}),
            Limits(cpu_shares=102, memory=1 << 30),
            id="limit of the pod as a whole",
        ),
        pytest.param(
            limits(asks(requests={"cpu": "1", "hugepages-2Mi": "4Mi"}, limits={"hugepages-2Mi": "4Mi"})),
            Limits(cpu_shares=1024, hugepages={2 * MIB: 4 * MIB}),
            id="huge pages",
        ),
    ],
)
def test_limits_of_pod(found: Limits, expect: Limits) -> None:
    assert found == expect


def test_limits_of_the_node_are_what_remains() -> None:
    found = plan.limits_of_node({"cpu": Decimal(2), "memory": Decimal(1000), "pid": Decimal(77), "pods": Decimal(110)})
    assert found == Limits(cpu_shares=2048, memory=1000, pids=77)


def test_burstable_has_the_shares_of_its_pods() -> None:
    found = plan.limits_of_qos(
        [pod(asks(requests={"cpu": "1"})), pod(asks(requests={"cpu": "500m"}))], [2 * MIB], Kept()
    )
    assert found[Qos.BURSTABLE] == Limits(cpu_shares=1536, hugepages={2 * MIB: 1 << 62}, memory_low=0)
    assert found[Qos.BEST_EFFORT].cpu_shares == 2


@pytest.mark.parametrize(
    ("policy", "spec", "path", "parent"),
    [
        pytest.param(Policy(), asks(), "/kubepods/besteffort/podu-1", "/kubepods/besteffort/podu-1", id="best effort"),
        pytest.param(
            Policy(),
            asks(requests={"cpu": "1"}),
            "/kubepods/burstable/podu-1",
            "/kubepods/burstable/podu-1",
            id="burstable",
        ),
        pytest.param(
            Policy(), asks(requests=BOTH, limits=BOTH), "/kubepods/podu-1", "/kubepods/podu-1", id="guaranteed"
        ),
        pytest.param(
            Policy(root="/nodewright/c/n1"),
            asks(),
            "/nodewright/c/n1/kubepods/besteffort/podu-1",
            "/nodewright/c/n1/kubepods/besteffort/podu-1",
            id="root",
        ),
        pytest.param(
            Policy(driver="systemd"),
            asks(),
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_1.slice",
            "kubepods-besteffort-podu_1.slice",
            id="systemd",
        ),
        pytest.param(
            Policy(driver="systemd", root="/a-b"),
            asks(requests=BOTH, limits=BOTH),
            "/a_b.slice/a_b-kubepods.slice/a_b-kubepods-podu_1.slice",
            "a_b-kubepods-podu_1.slice",
            id="systemd with a root",
        ),
    ],
)
def test_names(policy: Policy, spec: Json, path: str, parent: str) -> None:
    found = plan.path_of(plan.pod_name(policy, pod(spec, meta={"uid": "u-1"})), policy.driver)
    assert (found, plan.cri_parent(found, policy.driver)) == (path, parent)
    assert plan.uid_of(found.rsplit("/", 1)[-1], policy.driver) == "u-1"


@pytest.mark.parametrize("uid", ["../x", "a/b", "", "a_b", "a\nb", "x" * 300])
def test_a_uid_that_cannot_be_part_of_a_path_is_refused(uid: str) -> None:
    with pytest.raises(Invalid, match="cannot name a cgroup"):
        plan.pod_name(Policy(), pod(meta={"uid": uid}))


@pytest.mark.parametrize(
    ("leaf", "driver"),
    [("burstable", "cgroupfs"), ("pod", "cgroupfs"), ("kubepods-burstable.slice", "systemd"), ("x.scope", "systemd")],
)
def test_cgroups_that_are_not_of_pods(leaf: str, driver: str) -> None:
    assert plan.uid_of(leaf, driver) is None


FULL = Limits(cpu_shares=1024, cpu_quota=50_000, cpu_period=100_000, memory=4096, pids=10, hugepages={2 * MIB: 4 * MIB})


def test_writes_v1() -> None:
    assert plan.writes(FULL, 1, [2 * MIB, 1 << 30]) == [
        ("cpu", "cpu.shares", "1024"),
        ("cpu", "cpu.cfs_period_us", "100000"),
        ("cpu", "cpu.cfs_quota_us", "50000"),
        ("memory", "memory.limit_in_bytes", "4096"),
        ("pids", "pids.max", "10"),
        ("hugetlb", "hugetlb.2MB.limit_in_bytes", str(4 * MIB)),
        ("hugetlb", "hugetlb.1GB.limit_in_bytes", "0"),
    ]


def test_writes_v2() -> None:
    assert plan.writes(FULL, 2, [2 * MIB]) == [
        ("cpu", "cpu.weight", "100"),
        ("cpu", "cpu.max", "50000 100000"),
        ("memory", "memory.max", "4096"),
        ("pids", "pids.max", "10"),
        ("hugetlb", "hugetlb.2MB.max", str(4 * MIB)),
    ]


def test_no_limit_is_written_as_such() -> None:
    free = Limits(cpu_quota=-1, cpu_period=100_000, memory=0, pids=-1)
    assert plan.writes(free, 2, []) == [
        ("cpu", "cpu.max", "max 100000"),
        ("memory", "memory.max", "max"),
        ("pids", "pids.max", "max"),
    ]
    assert [text for _, _, text in plan.writes(free, 1, [])] == ["100000", "-1", "-1", "max"]


def test_slice_properties() -> None:
    assert plan.slice_properties(FULL, 2) == [
        "CPUWeight=100",
        "CPUQuota=50%",
        "CPUQuotaPeriodSec=100000us",
        "MemoryMax=4096",
        "TasksMax=10",
    ]
    assert plan.slice_properties(FULL, 1)[0] == "CPUShares=1024"


V1, V2 = Machine(memory=8 << 30, cgroup_version=1), Machine(memory=8 << 30, cgroup_version=2)


@pytest.mark.parametrize(
    ("spec", "policy", "machine", "expect"),
    [
        pytest.param(
            asks(),
            Policy(),
            V1,
            {"cpu_shares": 2, "cpu_period": 100_000, "cpu_quota": 0, "oom_score_adj": 1000},
            id="nothing",
        ),
        pytest.param(
            asks(limits=BOTH),
            Policy(),
            V1,
            {
                "cpu_shares": 204,
                "cpu_period": 100_000,
                "cpu_quota": 20_000,
                "memory_limit_in_bytes": 200 * MIB,
                "oom_score_adj": 999,
            },
            id="a limit is the request too",
        ),
        pytest.param(
            asks(requests={"cpu": "0"}, limits={"cpu": "1"}),
            Policy(cpu_quota=False),
            V1,
            {"cpu_shares": 2, "oom_score_adj": 999},
            id="request of zero, no quota",
        ),
        pytest.param(
            asks(limits={"memory": "200Mi"}),
            Policy(),
            Machine(memory=8 << 30, cgroup_version=1, swap=Swap(True)),
            {
                "cpu_shares": 2,
                "cpu_period": 100_000,
                "cpu_quota": 0,
                "memory_limit_in_bytes": 200 * MIB,
                "memory_swap_limit_in_bytes": 200 * MIB,
                "oom_score_adj": 999,
            },
            id="no swap",
        ),
        pytest.param(
            asks(),
            Policy(),
            V2,
            {
                "cpu_shares": 2,
                "cpu_period": 100_000,
                "cpu_quota": 0,
                "oom_score_adj": 1000,
                "unified": {"memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.oom.group": "1"},
            },
            id="v2",
        ),
        pytest.param(
            asks(requests={"cpu": "1", "hugepages-2Mi": "4Mi"}, limits={"hugepages-2Mi": "4Mi"}),
            Policy(),
            Machine(memory=8 << 30, cgroup_version=1, hugepage_sizes=(2 * MIB, 1 << 30)),
            {
                "cpu_shares": 1024,
                "cpu_period": 100_000,
                "cpu_quota": 0,
                "oom_score_adj": 999,
                "hugepage_limits": [{"page_size": "2MB", "limit": 4 * MIB}, {"page_size": "1GB", "limit": 0}],
            },
            id="huge pages",
        ),
    ],
)
def test_container_resources(spec: Json, policy: Policy, machine: Machine, expect: Json) -> None:
    found = pod(spec)
    assert container_resources(found, found.spec["containers"][0], policy, machine) == expect


def test_a_container_without_a_limit_has_that_of_its_pod() -> None:
    found = pod(asks(), resources={"limits": {"cpu": "2", "memory": "1Gi"}})
    resources = container_resources(found, found.spec["containers"][0], Policy(), V1)
    assert (resources["cpu_quota"], resources["memory_limit_in_bytes"]) == (200_000, 1 << 30)


def test_sandbox_resources_have_the_overhead_separately() -> None:
    overhead, resources = sandbox_resources(pod(asks(requests=BOTH, limits=BOTH), overhead={"cpu": "50m"}), Policy())
    assert overhead == {"cpu_shares": 51, "cpu_period": 100_000, "cpu_quota": 5000}
    assert resources == {
        "cpu_shares": 204,
        "memory_limit_in_bytes": 200 * MIB,
        "cpu_period": 100_000,
        "cpu_quota": 20_000,
    }


def test_a_pod_with_exclusive_cpus_has_no_quota() -> None:
    alone = pod(container(resources={side: {"cpu": "2", "memory": "1Gi"} for side in ("requests", "limits")}))
    free = Policy().of(throttled=False)
    assert plan.limits_of_pod(alone, Policy().of(throttled=True)).cpu_quota == 200_000
    assert plan.limits_of_pod(alone, free).cpu_quota == -1
    assert plan.limits_of_pod(alone, free).cpu_shares == 2048
    assert "cpu_quota" not in sandbox_resources(alone, free)[1]


@pytest.mark.parametrize("leaf", ["pod..", "pod.", "pod../x", "pod a", "pod\n", "pod"])
def test_a_cgroup_whose_name_is_no_uid_is_no_pods(leaf: str) -> None:
    """A privileged pod can make one; what a pod left is swept by its UID, its folder too."""
    assert plan.uid_of(leaf, "cgroupfs") is None
