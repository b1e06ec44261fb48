"""What the runtime tells of all pods has no room in one message, or is much to read: pods with very many containers,
long annotations, mounts, groups and messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from cri_api.v1 import api_pb2, api_pb2_grpc

from agent.common.model.errors import CriError
from agent.common.model.labels import container_annotations
from agent.common.model.pods import Kind, Pod
from agent.runtime.edge import convert
from agent.runtime.edge.cri import Cri
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.cpu_time import least

pb: Any = api_pb2
_MESSAGE = 16 * 1024 * 1024  # bytes; containerd sends no larger one either
_EMOJI = "\U0001f600"


def _uid(number: int) -> str:
    return f"0b2c7f2e-0000-4000-8000-{number:012d}"


def _greedy(containers: int) -> Pod:
    """As much for the runtime to remember as one pod of 1.4 MB has room for."""
    more: Json = {
        "terminationMessagePath": "/" + _EMOJI * 2047,
        "lifecycle": {"preStop": {"exec": {"command": ["x" * 1980]}}},
        "ports": [{"containerPort": 1, "name": "p"} for _ in range(58)],
    }
    return pod(*(container(f"c{number}", **more) for number in range(containers)))


class _Runtime(api_pb2_grpc.RuntimeServiceServicer):  # type: ignore[misc]
    """Sandboxes and containers, listed as their filters say."""

    def __init__(self) -> None:
        self.sandboxes: list[Any] = []
        self.containers: list[Any] = []
        self.stopped: list[tuple[str, int]] = []
        self.moving: list[Any] = []  # these exit once those in this state have been listed
        self.until = pb.CONTAINER_RUNNING
        self.lists = 0

    def put(self, number: int, annotations: Iterable[Json], *, state: str = "CONTAINER_EXITED") -> None:
        uid, box = _uid(number), f"s{number}"
        meta = {"name": "web", "namespace": "shop", "uid": uid}
        self.sandboxes.append(pb.PodSandbox(id=box, metadata=meta, state="SANDBOX_READY"))
        for index, one in enumerate(annotations):
            entry = {"id": f"{box}-{index}", "pod_sandbox_id": box, "labels": {convert.POD_UID: uid}, "state": state}
            self.containers.append(pb.Container(metadata={"name": f"c{index}"}, annotations=one, **entry))

    async def Version(self, request: Any, context: Any) -> Any:
        return pb.VersionResponse(runtime_name="containerd")

    async def ListPodSandbox(self, request: Any, context: Any) -> Any:
        chosen = request.filter
        found = [
            one
            for one in self.sandboxes
            if chosen.label_selector.get(convert.POD_UID, one.metadata.uid) == one.metadata.uid
            and (not chosen.HasField("state") or chosen.state.state == one.state)
        ]
        return pb.ListPodSandboxResponse(items=found)

    async def ListContainers(self, request: Any, context: Any) -> Any:
        chosen = request.filter
        self.lists += 1
        found = [
            one
            for one in self.containers
            if chosen.pod_sandbox_id in ("", one.pod_sandbox_id)
            and chosen.label_selector.get(convert.POD_UID, one.labels[convert.POD_UID]) == one.labels[convert.POD_UID]
            and (not chosen.HasField("state") or chosen.state.state == one.state)
        ]
        answer = pb.ListContainersResponse(containers=found)
        if chosen.HasField("state") and chosen.state.state == self.until:
            for one in self.moving:
                one.state = pb.CONTAINER_EXITED
        return answer

    async def StopContainer(self, request: Any, context: Any) -> Any:
        self.stopped.append((request.container_id, request.timeout))
        return pb.StopContainerResponse()

    async def ExecSync(self, request: Any, context: Any) -> Any:
        return pb.ExecSyncResponse(stdout=b"x" * int(request.cmd[0]), exit_code=3)

    async def ListPodSandboxStats(self, request: Any, context: Any) -> Any:
        by_box: dict[str, list[Any]] = {one.id: [] for one in self.sandboxes}
        for one in self.containers:
            layer = {"timestamp": 1, "used_bytes": {"value": 2}, "inodes_used": {"value": 3}}
            about = {"id": one.id, "annotations": one.annotations}
            by_box[one.pod_sandbox_id].append(pb.ContainerStats(attributes=about, writable_layer=layer))
        found = [
            pb.PodSandboxStats(attributes={"id": box}, linux={"containers": listed})
            for box, listed in by_box.items()
            if request.filter.id in ("", box)
        ]
        return pb.ListPodSandboxStatsResponse(stats=found)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Cri, _Runtime]]:
    runtime, server = _Runtime(), grpc.aio.server()
    api_pb2_grpc.add_RuntimeServiceServicer_to_server(runtime, server)
    server.add_insecure_port(f"unix:{tmp_path}/r.sock")
    await server.start()
    cri = Cri(f"{tmp_path}/r.sock")
    yield cri, runtime
    await cri.close()
    await server.stop(None)


async def test_containers_of_all_pods_that_are_more_than_a_message(served: tuple[Cri, _Runtime]) -> None:
    """Fourteen pods with a hundred containers each do it, and no pod of the node was seen any more."""
    cri, runtime = served
    greedy = _greedy(112)
    remembered = [container_annotations(greedy, one, 0) for _, one in greedy.containers(Kind.MAIN)]
    for number in range(14):
        runtime.put(number, remembered)
    runtime.put(14, [{}])
    assert pb.ListContainersResponse(containers=runtime.containers).ByteSize() > _MESSAGE
    listed = await cri.list_containers()
    assert {one.uid for one in listed} == {_uid(number) for number in range(15)}
    assert len(listed) == len({one.id for one in listed}) == 14 * 112 + 1


async def test_containers_of_one_pod_that_are_more_than_a_message(served: tuple[Cri, _Runtime]) -> None:
    """They are listed by their states, so that none that changes meanwhile is missed or is there twice."""
    cri, runtime = served
    runtime.put(0, [{"more": "x" * 9 * 1024 * 1024}])
    runtime.put(0, [{"more": "x" * 9 * 1024 * 1024}], state="CONTAINER_RUNNING")
    runtime.sandboxes.pop()
    runtime.containers[1].id, runtime.moving = "moving", [runtime.containers[1]]
    for uid in (_uid(0), None):
        runtime.containers[1].state = pb.CONTAINER_RUNNING
        with pytest.raises(CriError):  # what has exited is too much, now that both have
            await cri.list_containers(uid)
    runtime.containers[0].annotations["more"] = "x" * 6 * 1024 * 1024
    runtime.containers.append(pb.Container(id="new", pod_sandbox_id="s0", annotations={"more": "x" * 9 * 1024 * 1024}))
    runtime.containers[2].labels[convert.POD_UID] = _uid(0)
    for uid in (_uid(0), None):
        runtime.containers[1].state = pb.CONTAINER_RUNNING
        found = {one.id: one.state.value for one in await cri.list_containers(uid)}
        assert found == {"s0-0": "exited", "moving": "exited", "new": "created"}


@pytest.mark.parametrize("until", ["CREATED", "RUNNING", "UNKNOWN", "EXITED"])
async def test_a_container_in_an_unknown_state_that_ends_while_it_is_listed(
    served: tuple[Cri, _Runtime], until: str
) -> None:
    """A runtime that was started anew may know no more of it. When somebody ends it, it has exited."""
    cri, runtime = served
    runtime.put(0, [{"more": "x" * 6 * 1024 * 1024}] * 2, state="CONTAINER_RUNNING")
    runtime.put(0, [{"more": "x" * 6 * 1024 * 1024}], state="CONTAINER_UNKNOWN")
    runtime.sandboxes.pop()
    runtime.containers[2].id, runtime.moving = "lost", [runtime.containers[2]]
    runtime.until = pb.ContainerState.Value(f"CONTAINER_{until}")
    assert "lost" in {one.id for one in await cri.list_containers(_uid(0))}


async def test_a_list_in_parts_is_read_part_by_part(
    served: tuple[Cri, _Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred pods may have 160 MB together: they are not kept twice, and not read in one turn of the event loop."""
    cri, runtime = served
    asked, original = list[int](), convert.container_listed

    def noted(*args: Any) -> Any:
        asked.append(runtime.lists)
        return original(*args)

    monkeypatch.setattr(convert, "container_listed", noted)
    for number in range(3):
        runtime.put(number, [{"more": "x" * 7 * 1024 * 1024}])
    assert len(await cri.list_containers()) == 3
    assert asked == [2, 3, 4], "the whole list, and then each pod"


async def test_sandboxes_that_are_more_than_a_message(served: tuple[Cri, _Runtime]) -> None:
    cri, runtime = served
    for number in range(4):
        runtime.put(number, [])
        runtime.sandboxes[number].annotations["more"] = "x" * 5 * 1024 * 1024
        runtime.sandboxes[number].state = number % 2
    assert len(await cri.list_sandboxes()) == 4


async def test_sizes_of_layers_that_are_more_than_a_message(served: tuple[Cri, _Runtime]) -> None:
    cri, runtime = served
    for number in range(3):
        runtime.put(number, [{"more": "x" * 7 * 1024 * 1024}])
    found = [one for box in await cri.sandbox_stats() for one in box["linux"]["containers"]]
    assert [one["attributes"]["id"] for one in found] == ["s0-0", "s1-0", "s2-0"]
    assert [one["writable_layer"]["used_bytes"]["value"] for one in found] == [2, 2, 2]


async def test_sizes_of_many_layers_are_read_quickly(served: tuple[Cri, _Runtime]) -> None:
    """5,000 containers took 0.27 s of the event loop, as all of their statistics were read; only layers are used."""
    entry = pb.ContainerStats(
        attributes={"id": "a" * 64, "labels": {str(number): "x" for number in range(5)}},
        cpu={"usage_core_nano_seconds": {"value": 1}},
        memory={name: {"value": 1} for name in ("usage_bytes", "rss_bytes", "page_faults", "working_set_bytes")},
        writable_layer={"timestamp": 1, "used_bytes": {"value": 2}, "inodes_used": {"value": 3}},
    )
    stats = pb.PodSandboxStats(linux={"containers": [entry] * 5000})
    seconds, found = least(lambda: convert.layers(stats))
    assert seconds < 0.1
    assert len(found["linux"]["containers"]) == 5000


def test_many_mounts_are_read_quickly() -> None:
    """A pod of 1.4 MB has room for 25,000: 0.31 s of the event loop for each status of its container."""
    mount = {"container_path": "/a", "host_path": "/b", "recursive_read_only": True, "image": {"image": "busybox"}}
    status = pb.ContainerStatus(id="c", mounts=[pb.Mount(**mount)] * 25_000)
    seconds, found = least(lambda: convert.container_status(status))
    assert seconds < 0.2
    assert len(found.mounts) == 25_000 and found.mounts[0] == mount
    plain = convert.container_status(pb.ContainerStatus(id="c", mounts=[pb.Mount(container_path="/a", host_path="/b")]))
    assert plain.mounts == ({"container_path": "/a", "host_path": "/b", "recursive_read_only": False},)


def test_groups_of_a_container() -> None:
    """An image whose /etc/group has a user in a million groups: 40 MB and 0.2 s for each status of each container, and
    a status of 7 MB, which no API server takes."""
    status = pb.ContainerStatus(id="c", user={"linux": {"uid": 5, "supplemental_groups": range(1_000_000)}})
    seconds, found = least(lambda: convert.container_status(status))
    assert seconds < 0.05
    assert found.user == {"uid": 5, "gid": 0, "supplemental_groups": list(range(1024))}


def test_messages_of_the_runtime() -> None:
    """They quote the pod: a path of a megabyte, once or more."""
    found = convert.container_status(pb.ContainerStatus(id="c", message="beginning" + "x" * 3_000_000 + "cause"))
    assert len(found.message) <= 16 * 1024
    assert found.message.startswith("beginning") and found.message.endswith("cause")


async def test_a_grace_of_billions_of_years(served: tuple[Cri, _Runtime]) -> None:
    """The API server takes any int64. The call was out of time at once: the container was never told to stop."""
    cri, runtime = served
    await cri.stop_container("c", 2**63 - 1)
    assert runtime.stopped == [("c", 10**9)]


async def test_what_a_command_writes(served: tuple[Cri, _Runtime]) -> None:
    """The runtime sends 16 MiB of it, and a namespace has hundreds of probes that may end together."""
    cri, _ = served
    assert (await cri.exec_sync("c", ["1000000"], 1)).exit_code == 3
    with pytest.raises(CriError) as caught:
        await cri.exec_sync("c", ["1100000"], 1)
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert len((await cri.exec_sync("c", ["1100000"], 1, much_output=True)).stdout) == 1_100_000
