"""The kubepods tree on a v2 file system in memory: its files after each step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal

import pytest

from agent.resources.edge.cgroups import CgroupTree
from agent.resources.edge.errors import CgroupError
from agent.resources.model import Limits
from agent.resources.plan.cgroup_reading import limits_read
from agent.resources.plan.cgroups import Policy
from agent.resources.work.cgroups import KubepodsTree
from nodelib import mountinfo
from nodelib.cgroups import Mounts, find_mounts
from nodelib.errors import Permanent
from tests.builders.pods import pod
from tests.fakes.cgroup_files import FakeCgroupFiles
from tests.unit.agent.common.test_demand import asks

NODE = {"cpu": Decimal(2), "memory": Decimal(1 << 30), "pid": Decimal(1000)}
BOTH = {"cpu": "200m", "memory": "200Mi"}


@pytest.fixture
def files() -> FakeCgroupFiles:
    return FakeCgroupFiles()


def kubepods(files: FakeCgroupFiles, policy: Policy | None = None, kill_timeout: float = 10.0) -> KubepodsTree:
    tree = CgroupTree(Mounts(2, {"": files.top}), files, kill_timeout)
    return KubepodsTree(tree, policy or Policy(pids=50), hugepage_sizes=(2 << 20,))


async def test_setup_creates_the_tree_with_all_controllers(files: FakeCgroupFiles) -> None:
    await kubepods(files, Policy(root="/nodewright/c/n1")).setup(NODE)
    found = files.dump()
    assert found["/nodewright/c/n1/kubepods"] == {
        "cpu.weight": "174",
        "memory.max": str(1 << 30),
        "memory.min": "0",
        "memory.low": "0",
        "pids.max": "1000",
        "hugetlb.2MB.max": "0",
    }
    assert found["/nodewright/c/n1/kubepods/besteffort"] == {"cpu.weight": "1", "hugetlb.2MB.max": str(1 << 62)}
    assert files.read("/cg/nodewright/c/cgroup.subtree_control") == "cpu hugetlb memory pids"


async def test_every_operation_on_a_cgroup_is_timed(files: FakeCgroupFiles) -> None:
    timed: list[str] = []

    @contextmanager
    def note(operation: str) -> Iterator[None]:
        yield
        timed.append(operation)

    tree = KubepodsTree(CgroupTree(Mounts(2, {"": files.top}), files), Policy(), timed=note)
    await tree.setup(NODE)
    timed.clear()
    subject = pod(asks(requests=BOTH, limits=BOTH), meta={"uid": "a"})
    await tree.ensure_pod(subject)
    await tree.ensure_pod(subject)
    await tree.set_limits(subject, replace(tree.wanted(subject), memory=300 << 20))
    await tree.remove_pod("a")
    assert timed == ["create", "update", "destroy"]


async def test_pods_by_class(files: FakeCgroupFiles) -> None:
    tree = kubepods(files)
    await tree.setup(NODE)
    assert await tree.ensure_pod(pod(asks(), meta={"uid": "a"})) == "/kubepods/besteffort/poda"
    burstable = pod(asks(requests={"cpu": "500m"}), meta={"uid": "b"})
    assert await tree.ensure_pod(burstable) == "/kubepods/burstable/podb"
    assert await tree.ensure_pod(pod(asks(requests=BOTH, limits=BOTH), meta={"uid": "c"})) == "/kubepods/podc"
    assert await tree.pod_uids() == {"a", "b", "c"}
    found = files.dump()
    assert found["/kubepods/burstable"]["cpu.weight"] == "59"
    assert found["/kubepods/podc"]["cpu.max"] == "20000 100000" and found["/kubepods/podc"]["pids.max"] == "50"
    await tree.remove_pod("b")
    assert files.dump()["/kubepods/burstable"]["cpu.weight"] == "1"
    assert await tree.pod_uids() == {"a", "c"}
    await tree.remove_pod("b")


async def test_a_restarted_agent_continues_with_the_tree(files: FakeCgroupFiles) -> None:
    first = kubepods(files)
    await first.setup(NODE)
    found = pod(asks(requests={"cpu": "1"}), meta={"uid": "b"})
    await first.ensure_pod(found)
    before = files.dump()
    second = kubepods(files)
    await second.setup(NODE)
    await second.ensure_pod(found)
    assert files.dump() == before and await second.pod_uids() == {"b"}


async def test_changed_limits_are_written_again(files: FakeCgroupFiles) -> None:
    tree = kubepods(files)
    await tree.setup(NODE)
    await tree.ensure_pod(pod(asks(requests={"cpu": "1"}, limits={"cpu": "1"}), meta={"uid": "b"}))
    await tree.ensure_pod(pod(asks(requests={"cpu": "1"}, limits={"cpu": "2"}), meta={"uid": "b"}))
    assert files.dump()["/kubepods/burstable/podb"]["cpu.max"] == "200000 100000"


async def test_remaining_processes_are_killed_and_cgroups_removed(files: FakeCgroupFiles) -> None:
    tree = kubepods(files)
    await tree.setup(NODE)
    parent = await tree.ensure_pod(pod(asks(), meta={"uid": "a"}))
    files.mkdir(f"/cg{parent}/container")
    files.procs[f"/cg{parent}/container"] = {4_194_999}
    files.busy = 2
    await tree.remove_pod("a")
    assert await tree.pod_uids() == frozenset()


async def test_processes_that_survive_a_kill_are_reported(files: FakeCgroupFiles) -> None:
    tree = kubepods(files, kill_timeout=0.05)
    await tree.setup(NODE)
    parent = await tree.ensure_pod(pod(asks(), meta={"uid": "a"}))
    files.procs[f"/cg{parent}"] = {4_194_999}
    files.unkillable = {4_194_999}
    with pytest.raises(CgroupError, match="survive SIGKILL"):
        await tree.remove_pod("a")


async def test_a_parent_with_processes_is_an_error_with_advice(files: FakeCgroupFiles) -> None:
    files.write("/cg/cgroup.subtree_control", "+cpu +memory +pids +hugetlb")
    files.mkdir("/cg/busy")
    files.procs["/cg/busy"] = {5}
    files.offer("/cg/busy", "cpu memory pids hugetlb")
    with pytest.raises(CgroupError, match="Move the processes of this cgroup into a child"):
        await kubepods(files, Policy(root="/busy")).setup(NODE)


async def test_without_qos_classes_the_runtime_chooses(files: FakeCgroupFiles) -> None:
    tree = kubepods(files, Policy(per_qos=False))
    await tree.setup(NODE)
    assert await tree.ensure_pod(pod(asks())) == "" and await tree.pod_uids() == frozenset()


async def test_v1_can_be_refused(files: FakeCgroupFiles) -> None:
    tree = CgroupTree(Mounts(2, {"": files.top}), files)
    tree.version = 1
    with pytest.raises(Permanent, match="failCgroupV1"):
        await KubepodsTree(tree, Policy(fail_v1=True)).setup(NODE)


class Slices:
    """systemd, as far as the tree needs it."""

    def __init__(self) -> None:
        self.units: dict[str, list[str]] = {}

    async def check(self) -> None: ...

    async def ensure(self, unit: str, properties: list[str]) -> None:
        self.units[unit] = properties

    async def stop(self, unit: str) -> None:
        del self.units[unit]


async def test_the_systemd_driver_makes_slices(files: FakeCgroupFiles) -> None:
    slices = Slices()
    tree = KubepodsTree(CgroupTree(Mounts(2, {"": files.top}), files), Policy(driver="systemd"), slices=slices)
    await tree.setup(NODE)
    assert await tree.ensure_pod(pod(asks(), meta={"uid": "a-1"})) == "kubepods-besteffort-poda_1.slice"
    assert slices.units["kubepods-besteffort-poda_1.slice"] == ["CPUWeight=1"]
    assert await tree.pod_uids() == {"a-1"}
    await tree.remove_pod("a-1")
    assert set(slices.units) == {"kubepods.slice", "kubepods-besteffort.slice", "kubepods-burstable.slice"}


HYBRID = """
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:5 - cgroup cgroup rw,memory
36 31 0:32 / /very/long/other/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        pytest.param(
            HYBRID,
            Mounts(
                1,
                {
                    "cpu": "/sys/fs/cgroup/cpu,cpuacct",
                    "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
                    "memory": "/sys/fs/cgroup/memory",
                    "name=systemd": "/sys/fs/cgroup/systemd",
                },
                "/sys/fs/cgroup/unified",
            ),
            id="hybrid is v1",
        ),
        pytest.param(
            "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate", Mounts(2, {"": "/sys/fs/cgroup"}), id="v2"
        ),
        pytest.param(
            "1 2 0:3 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n4 5 0:6 / /c rw - cgroup2 cgroup2 rw",
            Mounts(2, {"": "/c"}),
            id="v1 without controllers is v2",
        ),
    ],
)
def test_find_mounts(text: str, expect: Mounts) -> None:
    assert find_mounts(mountinfo.parsed(text.strip().encode())) == expect


def test_no_cgroups_at_all() -> None:
    with pytest.raises(Permanent, match="no cgroup file system"):
        find_mounts(mountinfo.parsed(b"1 2 0:3 / / rw - ext4 /dev/x rw"))


@pytest.mark.parametrize("path", ["/", "", "a", "/a/../b", "/a//b"])
async def test_paths_that_are_never_touched(files: FakeCgroupFiles, path: str) -> None:
    with pytest.raises(Permanent):
        await CgroupTree(Mounts(2, {"": files.top}), files).remove(path)


async def test_the_limits_of_a_pod_are_read_and_changed(files: FakeCgroupFiles) -> None:
    tree = kubepods(files)
    await tree.setup(NODE)
    small = pod(asks(requests={"cpu": "100m", "memory": "64Mi"}, limits=BOTH), meta={"uid": "b"})
    large = pod(asks(requests={"cpu": "200m", "memory": "64Mi"}, limits={"cpu": 1, "memory": "1Gi"}), meta={"uid": "b"})
    await tree.ensure_pod(small)
    present = await tree.limits(small)
    assert present is not None
    assert (present.cpu_shares, present.cpu_quota, present.memory) == (102, 20_000, 200 << 20)
    assert present.pids == 50, "what is not read is not changed by writing it back"
    await tree.set_limits(large, replace(present, memory=tree.wanted(large).memory))
    found = files.dump()["/kubepods/burstable/podb"]
    assert (found["memory.max"], found["cpu.max"], found["cpu.weight"]) == (str(1 << 30), "20000 100000", "17")
    assert files.dump()["/kubepods/burstable"]["cpu.weight"] == "29", "the class weighs what its pods ask for now"
    again = await tree.limits(large)
    assert again is not None and again.memory == 1 << 30 and again.cpu_shares == 102


async def test_memory_in_use_of_a_pod_and_its_containers(files: FakeCgroupFiles) -> None:
    tree = kubepods(files)
    await tree.setup(NODE)
    of = pod(asks(requests={"cpu": "100m"}), meta={"uid": "b"})
    await tree.ensure_pod(of)
    folder = "/cg/kubepods/burstable/podb"
    files.write(f"{folder}/cgroup.subtree_control", "+memory")
    for leaf in ("crio-conmon-c3.scope", "cri-containerd-c1.scope", "c3", "crio-conmon-c1.scope"):
        files.mkdir(f"{folder}/{leaf}")
    files.write(f"{folder}/memory.current", "300")
    files.write(f"{folder}/c3/memory.current", "100")
    files.write(f"{folder}/cri-containerd-c1.scope/memory.current", "200")
    use = await tree.memory_use(of, ["c1", "c2", "c3"])
    assert (use.pod, use.containers) == (300, {"c1": 200, "c3": 100})


async def test_pods_without_cgroups_of_their_own_have_no_limits(files: FakeCgroupFiles) -> None:
    tree = kubepods(files, Policy(per_qos=False))
    assert await tree.limits(pod()) is None


@pytest.mark.parametrize(
    ("texts", "expect"),
    [
        pytest.param(
            {"cpu.shares": "102", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
            Limits(102, -1, 100_000, 0),
            id="no-memory-controller",
        ),
        pytest.param(
            {
                "cpu.shares": "2",
                "cpu.cfs_quota_us": "1000",
                "cpu.cfs_period_us": "50000",
                "memory.limit_in_bytes": "9223372036854771712",
            },
            Limits(2, 1000, 50_000, 0),
            id="no-memory-limit",
        ),
        pytest.param({"memory.limit_in_bytes": "4096"}, Limits(7, -1, 100_000, 4096), id="no-cpu-controller"),
    ],
)
def test_reading_v1(texts: dict[str, str], expect: Limits) -> None:
    assert limits_read(1, texts, 7) == expect


async def test_v1_cannot_kill_whole_containers() -> None:
    class V1Tree:
        version = 1

    tree = KubepodsTree(V1Tree(), Policy(group_oom_kill=True))  # type: ignore[arg-type]
    with pytest.raises(Permanent) as caught:
        await tree.setup(NODE)
    assert "singleProcessOOMKill" in str(caught.value) and "cgroup v2" in str(caught.value)


async def test_cgroups_nested_deeper_than_any_stack_go_too(files: FakeCgroupFiles) -> None:
    tree = kubepods(files)
    await tree.setup(NODE)
    at = files.top + await tree.ensure_pod(pod(asks(), meta={"uid": "a"}))
    for _ in range(3000):
        at += "/d"
        files.mkdir(at)
    await tree.remove_pod("a")
    assert await tree.pod_uids() == frozenset()
