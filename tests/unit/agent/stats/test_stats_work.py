"""StatsProvider joins cgroups, the pod registry and the runtime, and shares one collection between callers."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.common.model.errors import CriUnavailable
from agent.server.work.metrics import MetricsEndpoints
from agent.stats.edge import machine
from agent.stats.edge.cgroups import CgroupReader
from agent.stats.model import Interface, StatsSettings, TreeUsage
from agent.stats.plan import summary as plan
from agent.stats.work.disk_usage import DiskUsage
from agent.stats.work.provider import StatsProvider, StatsSources
from tests.builders.metrics import metrics, series
from tests.builders.pods import pod
from tests.fakes.agent_view import FakeServerRuntime, FakeView, add_pod
from tests.fakes.clock import FakeClock
from tests.unit.agent.stats.cgroup_files import CONTAINER_ID, POD_UID, V1
from tests.waiting import until

_BOX = "c9a2f6a45565be0715875f9b1ee7016af98dcb372dea31f21b71e712264bc924"


class _Images:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def image_fs_info(self) -> list[dict[str, Any]]:
        return [{"fs_id": {"mountpoint": str(self.folder)}, "used_bytes": {"value": 77}, "inodes_used": {"value": 7}}]


class _Runtime(FakeServerRuntime):
    calls = 0

    async def sandbox_stats(self) -> list[dict[str, Any]]:
        self.calls += 1
        self._maybe_fail()
        layer = {"timestamp": 1, "used_bytes": {"value": 8192}, "inodes_used": {"value": 5}}
        return [{"linux": {"containers": [{"attributes": {"id": CONTAINER_ID}, "writable_layer": layer}]}}]


def _provider(tmp_path: Path, **settings: Any) -> tuple[StatsProvider, FakeView, _Runtime, FakeClock]:
    pod = f"kubepods/besteffort/pod{POD_UID}"
    for name, text in V1.items():
        for cgroup in ("kubepods", pod, f"{pod}/{CONTAINER_ID}", f"{pod}/{_BOX}"):
            path = tmp_path / "cgroup" / name.format(cgroup)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    cache = tmp_path / "kubelet" / "pods" / POD_UID / "volumes" / "kubernetes.io~empty-dir" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "file").write_bytes(b"x" * 50_000)
    (cache.parent.parent / "kubernetes.io~local-volume" / "pv-1").mkdir(parents=True, exist_ok=True)
    logs = tmp_path / "logs" / f"ns_web_{POD_UID}" / "main"
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "0.log").write_bytes(b"x" * 10_000)
    view = FakeView()
    add_pod(view, "web", POD_UID)
    observed = view.observations[POD_UID]
    view.observations[POD_UID] = replace(
        observed,
        sandboxes=(replace(observed.sandboxes[0], id=_BOX),),
        containers=(replace(observed.containers[0], id=CONTAINER_ID),),
    )
    runtime, clock = _Runtime(view), FakeClock()
    cgroups = CgroupReader(str(tmp_path / "cgroup"))
    sources = StatsSources(view, runtime, _Images(tmp_path), cgroups, machine)  # type: ignore[arg-type]
    folders = str(tmp_path / "kubelet"), str(tmp_path / "logs")
    provider = StatsProvider(StatsSettings("node-1", "/kubepods", *folders, **settings), sources, clock)
    return provider, view, runtime, clock


async def test_a_pod_with_its_container_sandbox_layer_logs_and_volumes(tmp_path: Path) -> None:
    provider, _, _, _ = _provider(tmp_path)
    snapshot = await provider.snapshot(storage=True)
    (pod,) = snapshot.pods
    assert (pod.namespace, pod.name, pod.uid) == ("ns", "web", POD_UID)
    assert [entry.name for entry in pod.containers] == ["main"]
    assert pod.sandbox is not None
    assert pod.sandbox.id == _BOX
    assert pod.containers[0].layer is not None
    assert pod.containers[0].layer.used == 8192
    assert snapshot.node.image_fs is not None
    assert (snapshot.node.image_fs.used, snapshot.node.image_fs.inodes_used) == (77, 7)
    (volume,) = pod.volumes
    assert (volume.name, volume.ephemeral) == ("cache", True)
    used, _ = plan.ephemeral_storage(pod)
    assert used >= 8192 + 50_000 + 10_000


async def test_it_is_counted_how_volumes_are_measured(tmp_path: Path) -> None:
    volumes = tmp_path / "pods" / "u1" / "volumes"
    for folder in ("kubernetes.io~empty-dir/cache", "kubernetes.io~nfs/data"):
        (volumes / folder).mkdir(parents=True)
    measured = metrics()
    usage = DiskUsage(machine, FakeClock(), str(tmp_path), measured.volume_measured)
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "files"}}
    usage.volumes("u1", pod(volumes=[{"name": "cache", "emptyDir": {}}, claim]))
    name = "kubelet_volume_metric_collection_duration_seconds_count"
    assert series(measured, name) == {("du",): 1, ("statfs",): 1}


@pytest.mark.parametrize("member", [_BOX, CONTAINER_ID], ids=["of the sandbox", "of a container"])
async def test_the_pods_network_is_read_by_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: str
) -> None:
    provider, _, _, _ = _provider(tmp_path)
    (tmp_path / f"cgroup/memory/kubepods/besteffort/pod{POD_UID}/{member}/cgroup.procs").write_text("4711\n")
    monkeypatch.setattr(machine, "interfaces", lambda pid=0: (Interface(f"of {pid}"),))
    (pod,) = (await provider.snapshot()).pods
    assert [one.name for one in pod.interfaces] == ["of 4711"]


@pytest.mark.parametrize(
    ("limit", "capacity"),
    [
        pytest.param("9223372036854771712", None, id="no limit"),
        pytest.param("1048576", 1048576, id="limited"),
    ],
)
async def test_a_node_that_is_part_of_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, capacity: int | None
) -> None:
    """In a cgroup namespace the root is the node's own: its usage is the node's, and its limit the capacity."""
    provider, _, _, clock = _provider(tmp_path)
    for name, text in V1.items():
        path = tmp_path / "cgroup" / name.format("")
        path.write_text(text.replace("9223372036854771712", limit))
    machines = (await provider.snapshot()).node
    await clock.advance(4)
    monkeypatch.setattr(machine, "is_part", lambda: True)
    node = (await provider.snapshot()).node
    assert (node.sample.memory.usage, node.sample.memory.working_set) == (614400, 614400 - 14400)
    assert node.memory_capacity == (capacity or machines.memory_capacity)


@pytest.mark.parametrize(("limit", "expect"), [("9223372036854771712", 2048), ("1048576", 0)], ids=["all", "limited"])
async def test_huge_pages_are_of_the_machines_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, expect: int
) -> None:
    provider, _, _, _ = _provider(tmp_path, huge_pages=2048)
    for name, text in V1.items():
        path = tmp_path / "cgroup" / name.format("")
        path.write_text(text.replace("9223372036854771712", limit))
    monkeypatch.setattr(machine, "is_part", lambda: True)
    assert (await provider.snapshot()).node.huge_pages == expect


async def test_hosts_files_and_termination_messages_count_as_the_pods_storage(tmp_path: Path) -> None:
    """CVE-2020-8557 and its siblings: what a container writes into a file that the agent gave it."""
    provider, _, _, clock = _provider(tmp_path)
    before, _ = plan.ephemeral_storage((await provider.snapshot(storage=True)).pods[0])
    folder = tmp_path / "kubelet" / "pods" / POD_UID
    (folder / "etc-hosts").write_bytes(b"x" * 100_000)
    (folder / "containers" / "main").mkdir(parents=True)
    for name in ("00000001", "00000002"):
        (folder / "containers" / "main" / name).write_bytes(b"x" * 100_000)
    await clock.advance(4)
    after, _ = plan.ephemeral_storage((await provider.snapshot(storage=True)).pods[0])
    assert after - before >= 300_000


async def test_calls_at_the_same_time_share_one_collection(tmp_path: Path) -> None:
    provider, _, runtime, clock = _provider(tmp_path)
    first, second = await asyncio.gather(provider.snapshot(storage=True), provider.snapshot(storage=True))
    assert first is second
    assert runtime.calls == 1
    await clock.advance(4)
    assert await provider.snapshot(storage=True) is not first
    assert runtime.calls == 2
    await provider.snapshot()
    assert runtime.calls == 2


async def test_callers_that_leave_leave_one_walk_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's files may take minutes: nothing else of the agent must lack a thread meanwhile."""
    provider, _, _, _ = _provider(tmp_path)
    tree, walks, end = machine.tree, 0, threading.Event()

    def slow(path: str) -> TreeUsage:
        nonlocal walks
        walks += not end.is_set()
        end.wait(60)
        return tree(path)

    monkeypatch.setattr(machine, "tree", slow)
    try:
        for number in range(40):
            caller = asyncio.create_task(provider.snapshot(storage=True))
            await (until(lambda: walks > 0) if not number else asyncio.sleep(0.001))
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
        async with asyncio.timeout(30):
            await asyncio.to_thread(lambda: None)
        assert walks == 1
        staying = asyncio.create_task(provider.snapshot(storage=True))
        await asyncio.sleep(0)
    finally:
        end.set()
    assert [pod.name for pod in (await staying).pods] == ["web"]


async def test_clients_that_leave_leave_one_look_at_details_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, _, _, _ = _provider(tmp_path)
    snapshot, looks, end = await provider.snapshot(), 0, threading.Event()

    def slow(*_: object) -> None:
        nonlocal looks
        looks += not end.is_set()
        end.wait(60)

    monkeypatch.setattr(CgroupReader, "details", slow)
    try:
        for number in range(40):
            caller = asyncio.create_task(provider.details(snapshot))
            await (until(lambda: looks > 0) if not number else asyncio.sleep(0.001))
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
        assert looks == 1
    finally:
        end.set()
    assert (await provider.details(snapshot)).containers == {}


async def test_a_collection_that_fails_is_not_shared_with_the_next_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, _, _, _ = _provider(tmp_path)
    with monkeypatch.context() as failing, pytest.raises(ZeroDivisionError):
        failing.setattr(CgroupReader, "pods", lambda *_: 1 // 0)
        await provider.snapshot(storage=True)
    assert [pod.name for pod in (await provider.snapshot(storage=True)).pods] == ["web"]


async def test_the_first_rate_takes_two_samples(tmp_path: Path) -> None:
    provider, _, _, clock = _provider(tmp_path)
    asking = asyncio.create_task(provider.snapshot(rates=True))
    await until(asking.done, clock=clock, advance=1)
    assert "/" in (await asking).earlier


async def test_without_the_runtime_only_its_own_numbers_are_missing(tmp_path: Path) -> None:
    provider, _, runtime, _ = _provider(tmp_path)
    runtime.fail = CriUnavailable("no runtime", code="UNAVAILABLE")
    (pod,) = (await provider.snapshot(storage=True)).pods
    assert pod.containers[0].layer is None
    assert pod.sample.memory.usage == 614400


async def test_a_cgroup_that_nobody_knows_is_left_out(tmp_path: Path) -> None:
    provider, view, _, _ = _provider(tmp_path)
    view.by_uid.clear()
    view.observations.clear()
    assert (await provider.snapshot()).pods == ()


async def test_node_alone(tmp_path: Path) -> None:
    provider, _, runtime, _ = _provider(tmp_path)
    node = await provider.node()
    assert node.sample.memory.working_set > 0
    assert node.fs is not None
    assert runtime.calls == 0


async def test_the_runtimes_own_cgroup_is_listed_where_it_is_known(tmp_path: Path) -> None:
    provider, _, _, _ = _provider(tmp_path)
    assert set((await provider.node()).systems) == {"kubelet", "pods"}
    provider, _, _, _ = _provider(tmp_path, runtime_cgroup="/kubepods")
    assert set((await provider.node()).systems) == {"kubelet", "pods", "runtime"}


async def test_the_systems_cgroup_is_listed_where_it_is_set(tmp_path: Path) -> None:
    provider, _, _, _ = _provider(tmp_path, system_cgroup="/kubepods")
    systems = (await provider.node()).systems
    assert set(systems) == {"kubelet", "pods", "misc"}
    assert systems["pods"].memory == systems["misc"].memory


async def test_details_of_every_container_and_sandbox(tmp_path: Path) -> None:
    provider, _, _, _ = _provider(tmp_path)
    snapshot = await provider.snapshot()
    assert (await provider.details(snapshot)).containers == {}
    pod = f"/kubepods/besteffort/pod{POD_UID}"
    for name in (CONTAINER_ID, _BOX):
        (tmp_path / f"cgroup/memory/{pod}/{name}/cgroup.procs").write_text("")
    assert set((await provider.details(snapshot)).containers) == {f"{pod}/{CONTAINER_ID}", f"{pod}/{_BOX}"}


async def test_container_metrics_touch_no_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of a volume may be gone, and a call that reads it would hang."""
    provider, _, _, _ = _provider(tmp_path)

    def hang(*_: object) -> Any:
        raise AssertionError("a volume was read")

    monkeypatch.setattr(machine, "volumes_of", hang)
    answer = await MetricsEndpoints(SimpleNamespace(stats=provider)).cadvisor(None)  # type: ignore[arg-type]
    assert isinstance(answer.body, bytes)
    assert any(
        line.startswith("container_fs_usage_bytes{") and " 8192 " in line for line in answer.body.decode().splitlines()
    )


async def test_usage_without_storage_asks_neither_files_nor_the_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, _, runtime, _ = _provider(tmp_path)
    monkeypatch.setattr(machine, "tree", lambda path: pytest.fail(f"{path} is counted"))
    (found,) = (await provider.usage([POD_UID], storage=False)).values()
    assert runtime.calls == 0 and found.volumes == () and found.sample.memory.working_set
