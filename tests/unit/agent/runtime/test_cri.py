"""The CRI edge: messages that cannot be made, and a runtime (a real gRPC server) that knows no call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from cri_api.v1 import api_pb2, api_pb2_grpc

from agent.common.model.errors import CriError, CriInvalid
from agent.common.model.pods import RunState
from agent.runtime.edge import convert
from agent.runtime.edge.cri import Cri
from nodelib.errors import Invalid
from nodelib.json_values import Json

CONFIG: Json = {
    "metadata": {"name": "web"},
    "args": ["a"],
    "labels": {"a": "b"},
    "mounts": [{"host_path": "/a"}, {"host_path": "/b"}],
    "linux": {"resources": {"cpu_shares": 2}, "security_context": {"run_as_user": {"value": 1}}},
}


def test_what_fits_is_made() -> None:
    made = convert.build(api_pb2.CreateContainerRequest, "create", "shop/web", config=CONFIG)
    assert made.config.linux.resources.cpu_shares == 2


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        pytest.param("config.metadata.name", {"metadata": {"name": 5}}, id="number-for-text"),
        pytest.param("config.args", {"args": ["a", 1]}, id="number-in-a-list"),
        pytest.param("config.labels", {"labels": {"a": 1}}, id="number-in-a-map"),
        pytest.param(
            "config.mounts[1].propagation", {"mounts": [{}, {"propagation": "SIDEWAYS"}]}, id="unknown-word-in-a-list"
        ),
        pytest.param("config.linux", {"linux": 3}, id="number-for-a-message"),
        pytest.param("config.linux.resources.cpu_shares", {"linux": {"resources": {"cpu_shares": "x"}}}, id="deep"),
        pytest.param("config.linux.resources.cpu_shares", {"linux": {"resources": {"cpu_shares": 1 << 70}}}, id="huge"),
        pytest.param(
            "config.linux.security_context.run_as_user.value",
            {"linux": {"security_context": {"run_as_user": {"value": 1.5}}}},
            id="fraction",
        ),
        pytest.param("config.stdin", {"stdin": "yes"}, id="text-for-a-switch"),
        pytest.param("config.nope", {"nope": 1}, id="unknown-field"),
        pytest.param("config.working_dir", {"working_dir": "\ud800"}, id="no-text-at-all"),
    ],
)
def test_what_does_not_fit_is_named(path: str, wrong: Json) -> None:
    with pytest.raises(CriInvalid) as caught:
        convert.build(api_pb2.CreateContainerRequest, "create container", "shop/web[main]", config={**CONFIG, **wrong})
    error = caught.value
    assert isinstance(error, CriError) and isinstance(error, Invalid)
    assert error.message.startswith(f"{path}: ")
    assert (error.obj, error.step, error.code) == ("shop/web[main]", "create container", "INVALID_ARGUMENT")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[tuple[Cri, list[str]]]:
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{tmp_path}/r.sock")
    await server.start()
    kinds: list[str] = []

    @contextmanager
    def operation(kind: str) -> Iterator[None]:
        kinds.append(kind)
        yield

    cri = Cri(f"{tmp_path}/r.sock", operation=operation)
    yield cri, kinds
    await cri.close()
    await server.stop(None)


SANDBOX: Json = {"metadata": {"name": "web", "namespace": "shop"}}
BOTH: dict[str, bool] = {"stdout": True, "stderr": True}
CALLS: dict[str, Callable[[Cri], Awaitable[Any]]] = {
    "list_podsandbox": lambda cri: cri.list_sandboxes(),
    "list_containers": lambda cri: cri.list_containers(),
    "podsandbox_status": lambda cri: cri.sandbox_status("s"),
    "container_status": lambda cri: cri.container_status("c"),
    "run_podsandbox": lambda cri: cri.run_sandbox(SANDBOX),
    "stop_podsandbox": lambda cri: cri.stop_sandbox("s"),
    "remove_podsandbox": lambda cri: cri.remove_sandbox("s"),
    "create_container": lambda cri: cri.create_container("s", CONFIG, SANDBOX),
    "start_container": lambda cri: cri.start_container("c"),
    "stop_container": lambda cri: cri.stop_container("c", 1),
    "remove_container": lambda cri: cri.remove_container("c"),
    "update_container": lambda cri: cri.update_resources("c", {}),
    "exec_sync": lambda cri: cri.exec_sync("c", ["true"], 1),
    "exec": lambda cri: cri.exec_url("c", ["true"], tty=False, stdin=False, **BOTH),
    "attach": lambda cri: cri.attach_url("c", tty=False, stdin=False, **BOTH),
    "port_forward": lambda cri: cri.port_forward_url("s", [80]),
    "reopen_container_log": lambda cri: cri.reopen_log("c"),
    "list_podsandbox_stats": lambda cri: cri.sandbox_stats(),
    "status": lambda cri: cri.status(),
    "version": lambda cri: cri.version(),
    "image_status": lambda cri: cri.image_status("i"),
    "pull_image": lambda cri: cri.pull_image("i", None, {}),
    "list_images": lambda cri: cri.list_images(),
    "remove_image": lambda cri: cri.remove_image("i"),
    "image_fs_info": lambda cri: cri.image_fs_info(),
}


@pytest.mark.parametrize("name", CALLS)
async def test_calls_are_counted_by_upstreams_names(runtime: tuple[Cri, list[str]], name: str) -> None:
    cri, kinds = runtime
    with pytest.raises(CriError) as caught:
        await CALLS[name](cri)
    assert caught.value.code == "UNIMPLEMENTED"
    assert kinds == [name]


async def test_a_runtime_that_cannot_resize_a_sandbox_is_fine(runtime: tuple[Cri, list[str]]) -> None:
    cri, kinds = runtime
    await cri.update_sandbox("s", {}, {"cpu_shares": 2})
    assert kinds == ["update_podsandbox_resources"]


class _Named(api_pb2_grpc.RuntimeServiceServicer):  # type: ignore[misc]
    """A runtime with a name, and one container."""

    asked = 0

    async def Version(self, request: Any, context: Any) -> Any:
        self.asked += 1
        return api_pb2.VersionResponse(runtime_name="cri-o", runtime_version="1.36.0")

    async def ListContainers(self, request: Any, context: Any) -> Any:
        return api_pb2.ListContainersResponse(containers=[api_pb2.Container(id="c")])

    async def ContainerStatus(self, request: Any, context: Any) -> Any:
        return api_pb2.ContainerStatusResponse(status=api_pb2.ContainerStatus(id="c"))


async def test_containers_know_their_runtime_which_is_asked_once(tmp_path: Path) -> None:
    server, named = grpc.aio.server(), _Named()
    api_pb2_grpc.add_RuntimeServiceServicer_to_server(named, server)
    server.add_insecure_port(f"unix:{tmp_path}/r.sock")
    await server.start()
    cri = Cri(f"{tmp_path}/r.sock")
    try:
        assert [one.full_id for one in await cri.list_containers()] == ["cri-o://c"]
        assert (await cri.container_status("c")).full_id == "cri-o://c"
        assert named.asked == 1
    finally:
        await cri.close()
        await server.stop(None)


_CUT = "failed to create containerd task: failed to create shim task: context canceled"
_PIPES = (
    "failed to create containerd task: failed to create shim task: failed to start io pipe copy: unable to copy pipes: "
    'containerd-shim: opening file "/run/containerd/c/io/1/c-stdout" failed: open c-stdout: no such file or directory'
)
_LATE = 'failed to start containerd task "c": context canceled'


@pytest.mark.parametrize(
    ("message", "started_at", "cut"),
    [
        pytest.param(_CUT, 0, True, id="cut-before-it-ran"),
        pytest.param(_PIPES, 0, True, id="cut-by-the-death-of-the-runtime-and-repeated"),
        pytest.param(_LATE, 0, False, id="cut-when-it-may-have-run"),
        pytest.param('exec: "nope": executable file not found', 0, False, id="its-own-fault"),
        pytest.param(_CUT, 7, False, id="it-ran"),
    ],
)
def test_a_container_whose_start_was_cancelled_counts_as_created(message: str, started_at: int, cut: bool) -> None:
    fields: Json = {"state": api_pb2.CONTAINER_EXITED, "exit_code": 128, "reason": "StartError", "finished_at": 9}
    status = api_pb2.ContainerStatus(id="c", message=message, started_at=started_at, **fields)
    found = convert.container_status(status)
    assert found.cut is cut
    assert found.state is (RunState.CREATED if cut else RunState.EXITED)
    assert (found.exit_code, found.finished_at) == ((0, 0) if cut else (128, 9))


@pytest.mark.parametrize(
    ("kind", "state", "reported"),
    [
        pytest.param("CONTAINER_STOPPED_EVENT", "CONTAINER_EXITED", True, id="an-end"),
        pytest.param("CONTAINER_STOPPED_EVENT", "CONTAINER_RUNNING", False, id="an-end-of-one-that-runs"),
        pytest.param("CONTAINER_DELETED_EVENT", "CONTAINER_EXITED", False, id="no-end"),
    ],
)
def test_an_event_reports_an_exit_and_nothing_else(kind: str, state: str, reported: bool) -> None:
    statuses = [
        {"id": "other", "state": "CONTAINER_EXITED", "metadata": {"name": "other"}},
        {"id": "c1", "state": state, "metadata": {"name": "main"}, "exit_code": 3},
    ]
    raw = api_pb2.ContainerEventResponse(
        container_id="c1",
        container_event_type=kind,  # type: ignore[arg-type]
        pod_sandbox_status={"metadata": {"uid": "u1"}},  # type: ignore[arg-type]
        containers_statuses=statuses,  # type: ignore[arg-type]
    )
    found = convert.event(raw)
    assert (found.uid, found.container_id, found.type) == ("u1", "c1", kind)
    assert (found.ended is not None) == reported
    if found.ended is not None:
        assert (found.ended.state, found.ended.exit_code, found.ended.name) == (RunState.EXITED, 3, "main")
