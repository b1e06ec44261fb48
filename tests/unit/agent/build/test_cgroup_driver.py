"""The runtime's cgroup driver, asked of a real gRPC server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from cri_api.v1 import api_pb2, api_pb2_grpc

from agent.build.cgroup_driver import with_driver_of
from agent.common.model.errors import CriError
from agent.config.parse import parse
from agent.runtime.edge.cri import Cri
from tests.builders.metrics import metrics, series
from tests.fakes.clock import FakeClock

Answer = Any  # a RuntimeConfigResponse, or a status code


def _says(driver: int) -> Answer:
    return api_pb2.RuntimeConfigResponse(linux=api_pb2.LinuxRuntimeConfiguration(cgroup_driver=driver))  # type: ignore[arg-type]


SYSTEMD, CGROUPFS, UNKNOWN = _says(api_pb2.SYSTEMD), _says(api_pb2.CGROUPFS), _says(7)
NOTHING = api_pb2.RuntimeConfigResponse()


@dataclass
class Runtime(api_pb2_grpc.RuntimeServiceServicer):  # type: ignore[misc]
    """Gives these answers one after the other, the last one again and again."""

    answers: list[Answer] = field(default_factory=list)
    asked: int = 0

    async def RuntimeConfig(self, request: api_pb2.RuntimeConfigRequest, context: grpc.aio.ServicerContext) -> Answer:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, grpc.StatusCode):
            await context.abort(answer, "not now")
        return answer


@pytest.fixture
async def dial(tmp_path: Path) -> AsyncIterator[Callable[[Runtime], asyncio.Future[Cri]]]:
    server, made = grpc.aio.server(), list[Cri]()

    async def start(runtime: Runtime) -> Cri:
        api_pb2_grpc.add_RuntimeServiceServicer_to_server(runtime, server)
        server.add_insecure_port(f"unix:{tmp_path}/r.sock")
        await server.start()
        made.append(Cri(f"{tmp_path}/r.sock"))
        return made[0]

    yield lambda runtime: asyncio.ensure_future(start(runtime))
    for cri in made:
        await cri.close()
    await server.stop(None)


@pytest.mark.parametrize(
    ("answers", "driver"),
    [
        pytest.param([SYSTEMD], "systemd", id="the runtime's"),
        pytest.param([CGROUPFS], "cgroupfs", id="the same"),
        pytest.param([NOTHING], "cgroupfs", id="nothing of Linux"),
        pytest.param([grpc.StatusCode.UNIMPLEMENTED], "cgroupfs", id="an older runtime"),
        pytest.param([grpc.StatusCode.UNAVAILABLE, SYSTEMD], "systemd", id="it starts"),
        pytest.param([grpc.StatusCode.INTERNAL], "cgroupfs", id="it never answers"),
        pytest.param([UNKNOWN], "cgroupfs", id="an unknown one"),
    ],
)
async def test_the_runtimes_driver_wins(
    dial: Callable[[Runtime], asyncio.Future[Cri]], answers: list[Answer], driver: str
) -> None:
    cri, clock = await dial(Runtime(list(answers))), FakeClock()
    settings = parse([], hostname="n")
    asking = asyncio.ensure_future(with_driver_of(cri, settings, clock))
    while not asking.done():
        await asyncio.sleep(0.01)
        await clock.advance(1)
    found = await asking
    assert (found.cgroups.pods.driver, found.effective["cgroupDriver"]) == (driver, driver)
    assert settings.cgroups.pods.driver == "cgroupfs"


async def test_an_unknown_driver_is_an_error(dial: Callable[[Runtime], asyncio.Future[Cri]]) -> None:
    cri = await dial(Runtime([UNKNOWN]))
    with pytest.raises(CriError, match="7 is not a cgroup driver"):
        await cri.cgroup_driver()


@pytest.mark.parametrize(
    ("answer", "counted"), [(SYSTEMD, {}), (grpc.StatusCode.UNIMPLEMENTED, {("1.38.0",): 1})], ids=["new", "old"]
)
async def test_a_runtime_that_is_too_old_to_be_asked_is_counted(
    dial: Callable[[Runtime], asyncio.Future[Cri]], answer: Answer, counted: dict[tuple[str, ...], float]
) -> None:
    cri, measured = await dial(Runtime([answer])), metrics()
    await with_driver_of(cri, parse([], hostname="n"), FakeClock(), measured.cri_names_no_driver)
    assert series(measured, "kubelet_cri_losing_support") == counted
