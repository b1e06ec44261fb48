"""The kubepods tree on this machine's own cgroup file systems."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal

import pytest

from agent.resources.edge.cgroups import CgroupTree
from agent.resources.edge.errors import CgroupError
from agent.resources.edge.kernel import hugepage_sizes, swap_limits
from agent.resources.edge.systemd import SystemdSlices
from agent.resources.plan.cgroups import Policy
from agent.resources.work.cgroups import KubepodsTree
from agent.resources.work.system_cgroups import SystemCgroupPaths, SystemCgroups
from nodelib.cgroups import Mounts
from nodelib.clock import SystemClock
from nodelib.command import run
from tests.builders.pods import pod
from tests.unit.agent.common.test_demand import asks

pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

NODE = {"cpu": Decimal(2), "memory": Decimal(1 << 30), "pid": Decimal(1000)}


def _trees() -> list[CgroupTree]:
    """The machine's tree, and on a hybrid machine its v2 tree too."""
    found = [CgroupTree.detect()]
    unified = "/sys/fs/cgroup/unified"
    if found[0].version == 1 and os.path.exists(f"{unified}/cgroup.controllers"):
        found.append(CgroupTree(Mounts(2, {"": unified})))
    return found


@pytest.fixture(params=_trees(), ids=lambda tree: f"v{tree.version}")
def tree(request: pytest.FixtureRequest) -> CgroupTree:
    found: CgroupTree = request.param
    return found


@pytest.fixture
def root() -> Iterator[str]:
    yield f"/nwn-{secrets.token_hex(4)}"


async def test_a_pods_life(tree: CgroupTree, root: str) -> None:
    kubepods = KubepodsTree(tree, Policy(root=f"{root}/n1", pids=64), hugepage_sizes=hugepage_sizes())
    limits = {"cpu": "500m", "memory": "128Mi"}
    found = pod(asks(requests={"cpu": "100m", "memory": "64Mi"}, limits=limits), meta={"uid": "u-1"})
    try:
        await kubepods.setup(NODE)
        parent = await kubepods.ensure_pod(found)
        assert parent == f"{root}/n1/kubepods/burstable/podu-1" and await tree.exists(parent)
        await _check_limits(tree, parent)
        sleeper = _inside(tree, parent)
        assert sleeper.pid in await tree.pids(parent)
        await kubepods.remove_pod("u-1")
        assert sleeper.wait(10) == -9
        assert not await tree.exists(parent) and await kubepods.pod_uids() == frozenset()
        await kubepods.remove_pod("u-1")
    finally:
        await tree.remove(root)
    assert not await tree.exists(root)


@pytest.mark.skipif(not os.path.isdir("/run/systemd/system"), reason="systemd is not the init system")
async def test_a_pods_life_in_slices_of_systemd(root: str) -> None:
    tree, slices, top = CgroupTree.detect(), SystemdSlices(), root.strip("/").replace("-", "_")
    policy = Policy(root=f"/{top}", driver="systemd", pids=64)
    kubepods = KubepodsTree(tree, policy, hugepage_sizes=hugepage_sizes(), slices=slices)
    limits = {"cpu": "500m", "memory": "128Mi"}
    found = pod(asks(requests={"cpu": "100m", "memory": "64Mi"}, limits=limits), meta={"uid": "u-1"})
    try:
        await slices.check()
        await kubepods.setup(NODE)
        parent = await kubepods.ensure_pod(found)
        assert parent == f"{top}-kubepods-burstable-podu_1.slice"
        shown = await run(["systemctl", "show", "--property=ControlGroup", "--value", parent])
        path = shown.stdout.decode().strip()
        await _check_limits(tree, path)
        sleeper = _inside(tree, path)
        assert await kubepods.pod_uids() == {"u-1"}
        await kubepods.remove_pod("u-1")
        assert sleeper.wait(30) != 0 and not await tree.exists(path)
        assert await kubepods.pod_uids() == frozenset()
    finally:
        await slices.stop(f"{top}.slice")
    assert not await tree.exists(f"/{top}.slice")


async def test_a_frozen_pod_goes_too(tree: CgroupTree, root: str) -> None:
    if tree.version != 1 or "freezer" not in tree.controllers:
        pytest.skip("the freezer of v1")
    kubepods = KubepodsTree(tree, Policy(root=root))
    try:
        await kubepods.setup(NODE)
        parent = await kubepods.ensure_pod(pod(asks(), meta={"uid": "f"}))
        sleeper = _inside(tree, parent, "freezer")
        await tree.write(parent, [("freezer", "freezer.state", "FROZEN")])
        await kubepods.remove_pod("f")
        assert sleeper.wait(10) == -9
    finally:
        await tree.remove(root)


async def test_what_the_runtime_made_in_the_hybrid_tree_goes_too(root: str) -> None:
    tree = CgroupTree.detect()
    unified = "/sys/fs/cgroup/unified"
    if tree.version != 1 or not os.path.exists(f"{unified}/cgroup.controllers"):
        pytest.skip("this machine has no v2 tree beside v1 controllers")
    kubepods = KubepodsTree(tree, Policy(root=root), hugepage_sizes=())
    parent = await kubepods.ensure_pod(pod(asks(), meta={"uid": "u-1"}))
    os.makedirs(f"{unified}{parent}/container")  # as runc does
    try:
        assert "u-1" in await kubepods.pod_uids()
        await kubepods.remove_pod("u-1")
        assert not os.path.exists(unified + parent)
    finally:
        await tree.remove(root)


async def test_a_pod_whose_resize_was_cut_is_taken_over_as_it_is(root: str) -> None:
    """v1 refuses a quota below a child's: what the ledger says is less than what a killed agent had already given."""
    tree = CgroupTree.detect()
    if tree.version != 1:
        pytest.skip("v2 takes any quota")
    kubepods, cores = KubepodsTree(tree, Policy(root=root)), asks(requests={"cpu": "10m"}, limits={"cpu": "100m"})
    try:
        await kubepods.setup(NODE)
        parent = await kubepods.ensure_pod(pod(cores, meta={"uid": "u-1"}))
        await tree.write(parent, [("cpu", "cpu.cfs_quota_us", "20000")])
        await tree.make(f"{parent}/container", [])
        await tree.write(f"{parent}/container", [("cpu", "cpu.cfs_quota_us", "20000")])
        again = KubepodsTree(tree, Policy(root=root))
        with pytest.raises(CgroupError, match="Invalid argument"):
            await again.ensure_pod(pod(cores, meta={"uid": "u-1"}))
        assert await again.ensure_pod(pod(cores, meta={"uid": "u-1"}), keep=True) == parent
        assert await tree.read(parent, "cpu", "cpu.cfs_quota_us") == "20000"
        await again.ensure_pod(pod(cores, meta={"uid": "u-2"}), keep=True)
        assert await tree.read(parent.replace("u-1", "u-2"), "cpu", "cpu.cfs_quota_us") == "10000"
    finally:
        await tree.remove(root)


async def test_a_limit_below_what_pods_use_waits_for_them(tree: CgroupTree, root: str) -> None:
    """cgroup v1 refuses it (EBUSY): the agent starts all the same, and the limit holds once there is room."""
    if tree.version != 1 or "memory" not in tree.controllers:
        pytest.skip("v2 takes any limit and kills for it")
    kubepods = KubepodsTree(tree, Policy(root=root))
    small = {**NODE, "memory": Decimal(16 << 20)}
    try:
        await kubepods.setup(NODE)
        parent = await kubepods.ensure_pod(pod(asks(), meta={"uid": "u-1"}))
        eater = _eating(tree, parent, 64 << 20)
        again = KubepodsTree(tree, Policy(root=root))
        await again.setup(small)
        with pytest.raises(CgroupError, match="write 16777216"):
            await again.enforce()
        eater.kill()
        eater.wait()
        await again.enforce()
        assert await tree.read(again.root, "memory", "memory.limit_in_bytes") == str(16 << 20)
    finally:
        await tree.remove(root)


def test_swap_accounting_is_detected(tree: CgroupTree) -> None:
    assert swap_limits(tree) in (True, False)


def _eating(tree: CgroupTree, parent: str, amount: int) -> subprocess.Popen[bytes]:
    """A process that holds so many bytes which nothing can reclaim."""
    code = (
        f"open({tree.folder(parent, 'memory') + '/cgroup.procs'!r}, 'w').write('0')\n"
        f"held = bytearray(b'x' * {amount})\nprint('full', flush=True)\ninput()"
    )
    eater = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert eater.stdout is not None and eater.stdout.readline() == b"full\n"
    return eater


async def _check_limits(tree: CgroupTree, parent: str) -> None:
    v1 = {
        ("cpu", "cpu.shares"): "102",
        ("cpu", "cpu.cfs_quota_us"): "50000",
        ("memory", "memory.limit_in_bytes"): str(128 << 20),
        ("pids", "pids.max"): "64",
    }
    v2 = {("cpu", "cpu.max"): "50000 100000", ("memory", "memory.max"): str(128 << 20), ("pids", "pids.max"): "64"}
    for (controller, file), expect in (v1 if tree.version == 1 else v2).items():
        if controller in tree.controllers:
            assert await tree.read(parent, controller, file) == expect


def _inside(tree: CgroupTree, parent: str, controller: str = "pids") -> subprocess.Popen[bytes]:
    """A process of a container below the pod's cgroup."""
    folder = f"{tree.folder(parent, controller)}/container"
    os.mkdir(folder)
    sleeper = subprocess.Popen(["sleep", "300"])
    with open(f"{folder}/cgroup.procs", "w", encoding="ascii") as file:
        file.write(str(sleeper.pid))
    return sleeper


_BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:  # the limit of processes; a shell would end here
        pass
"""


async def test_a_fork_bomb_with_little_cpu_is_ended_in_seconds(tree: CgroupTree, root: str) -> None:
    """Its processes share a twentieth of a CPU: a SIGKILL of one alone waits until that one gets its turn."""
    if tree.version == 2 and "cpu" not in tree.controllers:
        pytest.skip("on a hybrid machine the v2 tree has no controllers")
    kubepods = KubepodsTree(tree, Policy(root=root, pids=1500))
    found = pod(asks(requests={"cpu": "50m"}), meta={"uid": "u-1"})
    await kubepods.setup(NODE)
    parent = await kubepods.ensure_pod(found)
    folders = [f"{tree.folder(parent, one)}/cri-c1" for one in ("pids", "cpu", "freezer", "memory")]
    folders = [one for one in dict.fromkeys(folders) if os.path.isdir(os.path.dirname(one))]
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
    enter = " ".join(f"&& echo $$ > {folder}/cgroup.procs" for folder in folders)
    bomb = subprocess.Popen(["sh", "-c", f'true {enter} && exec "$@"', "sh", sys.executable, "-c", _BOMB])
    try:
        async with asyncio.timeout(120):
            while len(await tree.pids(parent)) < 500:
                await asyncio.sleep(0.2)
        little = ("cpu.max", "5000 100000") if tree.version == 2 else ("cpu.cfs_quota_us", "5000")
        await tree.write(parent, [("cpu", *little)])
        quota = await kubepods.limits(found)
        await kubepods.end_container("u-1", "c1")
        assert await tree.pids(parent) == frozenset()
        assert bomb.wait(10) == -9
        assert await kubepods.limits(found) == quota
    finally:
        await tree.remove(root)


async def test_nested_cgroups_with_long_names_go_with_their_pod(tree: CgroupTree, root: str) -> None:
    """A pod with a writable cgroup file system nests them: deeper than a stack, beyond the longest path."""
    kubepods = KubepodsTree(tree, Policy(root=root))
    name, depth = "d" * 200, 60 if tree.version == 1 else 1200
    try:
        await kubepods.setup(NODE)
        parent = await kubepods.ensure_pod(pod(asks(), meta={"uid": "u-1"}))
        controller = "pids" if tree.version == 1 else ""
        at, made = os.open(tree.folder(parent, controller), os.O_RDONLY), 0
        for _ in range(depth):
            try:
                os.mkdir(name, dir_fd=at)
            except OSError:
                break  # the kernel allows no more
            following = os.open(name, os.O_RDONLY, dir_fd=at)
            os.close(at)
            at, made = following, made + 1
        sleeper = subprocess.Popen(["sleep", "60"])
        handle = os.open("cgroup.procs", os.O_WRONLY, dir_fd=at)
        os.write(handle, str(sleeper.pid).encode())
        os.close(handle)
        os.close(at)
        assert made * len(name) > 4096
        assert sleeper.pid in await tree.pids(parent)
        await kubepods.remove_pod("u-1")
        assert sleeper.wait(10) == -9
        assert not await tree.exists(parent)
    finally:
        await tree.remove(root)
    assert not await tree.exists(root)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen(["sleep", "300"])
    yield made
    made.kill()
    made.wait(10)


async def test_a_process_is_moved(tree: CgroupTree, root: str, sleeper: subprocess.Popen[bytes]) -> None:
    await tree.make(f"{root}/kubelet", ())
    try:
        await tree.attach(f"{root}/kubelet", {sleeper.pid, 2**22 - 1})
        assert await tree.pids(f"{root}/kubelet") == await tree.movable(f"{root}/kubelet") == {sleeper.pid}
        with open(f"/proc/{sleeper.pid}/cgroup", encoding="ascii") as file:
            groups = {line.split(":")[1]: line.strip().split(":", 2)[2] for line in file}
        in_trees = [path for names, path in groups.items() if bool(names) == (tree.version == 1)]
        assert in_trees == [f"{root}/kubelet"] * len(in_trees)
    finally:
        await tree.remove(root)


async def test_processes_are_gathered_in_the_systems_cgroup(
    tree: CgroupTree, root: str, sleeper: subprocess.Popen[bytes]
) -> None:
    """In a cgroup of our own, as if it were the root."""
    if tree.version == 2:
        pytest.skip("on v2 only the true root may hold processes beside cgroups")
    await tree.make(root, ())
    try:
        await tree.attach(root, {sleeper.pid})
        await SystemCgroups(SystemCgroupPaths(system=f"{root}/system", root=root), tree, SystemClock()).setup()
        assert await tree.pids(f"{root}/system") == {sleeper.pid} and not await tree.movable(root)
    finally:
        await tree.remove(root)
