"""Every fault of every edge: running pods do not notice, the agent says what is wrong, and all is well again after it.

NODEWRIGHT_SEED=n chooses other calls at random; NODEWRIGHT_FAULTS=FILE collects the table of docs/robustness.md.
The faults that take long are soak: NODEWRIGHT_SOAK=1 ./nodewright test tests/cluster/faults -m soak
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

import pytest

from tests.cluster.faults import api_edge, kernel_edge
from tests.cluster.faults.faulty_api import behind_api_proxy, proxy_behind_api_proxy
from tests.cluster.faults.play import played, some
from tests.cluster.faults.promises import Fault, Site
from tests.cluster.faulty_runtime import behind_proxy
from tests.cluster.stepped_clock import library, stepped_clock
from tests.cluster.world import World
from tests.cri_proxy import CriProxy

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]
NODE = "node1"


async def test_an_api_server_that_answers_nonsense(world: World) -> None:
    site = Site(world, NODE)
    async with behind_api_proxy(site) as proxy:
        faults = [
            Fault(kind, "API server", lambda kind=kind: _answering(proxy, kind))  # type: ignore[misc]
            for kind in api_edge.KINDS
        ]
        await played(site, some(faults, site.seed, 4))


@contextlib.asynccontextmanager
async def _answering(proxy: api_edge.ApiProxy, kind: str) -> AsyncIterator[None]:
    proxy.set(kind)
    try:
        yield
    finally:
        proxy.set("")


async def test_an_api_server_that_answers_the_proxy_with_nonsense(world: World) -> None:
    site = Site(world, NODE)
    async with proxy_behind_api_proxy(site) as proxy:
        faults = [
            Fault(kind, "API server, proxy", lambda kind=kind: _answering(proxy, kind), "proxy")  # type: ignore[misc]
            for kind in api_edge.KINDS
        ]
        await played(site, some(faults, site.seed, 6))


# Methods of a pod's life; each fails in each way.
_CALLS: tuple[str, ...] = (
    *("RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "RemovePodSandbox"),
    *("ListContainers", "ListPodSandbox", "ContainerStatus", "PodSandboxStatus", "ImageStatus"),
)


async def test_a_runtime_each_of_whose_calls_fails(world: World) -> None:
    site = Site(world, NODE)
    async with behind_proxy(world, NODE, site.seed) as proxy:
        ways = ("refused", "unavailable", "late", "answer lost", "malformed")
        faults = [
            Fault(f"{call} {way}", "runtime", lambda call=call, way=way: _calls(proxy, call, way))  # type: ignore[misc]
            for call in _CALLS
            for way in ways
        ]
        await played(site, some(faults, site.seed, 10))


@contextlib.asynccontextmanager
async def _calls(proxy: CriProxy, call: str, way: str) -> AsyncIterator[None]:
    with proxy.every(call, way):
        yield


@pytest.mark.skipif(not kernel_edge.has_strace(), reason="strace is not installed: apt-get install strace")
async def test_a_kernel_that_refuses(world: World) -> None:
    site = Site(world, NODE)

    def files(error: str, every: int) -> contextlib.AbstractAsyncContextManager[object]:
        pid = world.pid(NODE, "agent")
        return kernel_edge.failing_calls(pid, kernel_edge.FILE_CHANGES, error, every)

    def netlink(error: str) -> contextlib.AbstractAsyncContextManager[object]:
        pid = world.pid(NODE, "proxy")  # its connections to the API server use other calls
        return kernel_edge.failing_calls(pid, "sendto,sendmsg,setsockopt", error)

    def limited(spare: int) -> contextlib.AbstractAsyncContextManager[object]:
        return kernel_edge.no_more_files(world.pid(NODE, "agent"), spare)

    await played(
        site,
        [
            Fault("ENOSPC at every change of a file", "kernel", lambda: files("ENOSPC", 1), said="No space left"),
            Fault("ENOSPC at every third change", "kernel", lambda: files("ENOSPC", 3)),
            Fault("EROFS at every change of a file", "kernel", lambda: files("EROFS", 1), said="Read-only"),
            Fault("EIO at every third change", "kernel", lambda: files("EIO", 3)),
            Fault("ENOMEM at every change of a rule", "kernel", lambda: netlink("ENOMEM"), "proxy"),
            Fault("ENOBUFS at every change of a rule", "kernel", lambda: netlink("ENOBUFS"), "proxy"),
            Fault(
                "EMFILE: no file can be opened", "kernel", lambda: limited(0), keeps_ready=False, may_log_errors=True
            ),
            Fault(
                "EMFILE: two files can be opened", "kernel", lambda: limited(2), keeps_ready=False, may_log_errors=True
            ),
        ],
    )


@pytest.mark.skipif(not library(), reason="libfaketime is not installed: apt-get install libfaketime")
async def test_a_wall_clock_that_steps(world: World) -> None:
    site = Site(world, NODE)
    async with stepped_clock(world, NODE) as set_clock:

        @contextlib.asynccontextmanager
        async def stepped(seconds: int) -> AsyncIterator[None]:
            set_clock(seconds)
            try:
                yield
            finally:
                set_clock(0)

        steps = {"an hour ahead": 3600, "an hour back": -3600, "two days ahead": 172800, "two days back": -172800}
        await played(site, [Fault(name, "clock", lambda s=s: stepped(s)) for name, s in steps.items()])  # type: ignore[misc]


async def test_daemons_that_are_killed_or_stopped(world: World) -> None:
    site = Site(world, NODE)

    @contextlib.asynccontextmanager
    async def killed(program: str) -> AsyncIterator[None]:
        await world.kill(NODE, program)
        yield

    await played(
        site,
        [
            Fault("agent killed", "process", lambda: killed("agent"), starts_pods=True, restarts_program=True),
            Fault("proxy killed", "process", lambda: killed("proxy"), "proxy", starts_pods=True, restarts_program=True),
            Fault("containerd killed", "process", lambda: killed("containerd"), starts_pods=True),
            Fault("agent stopped for 6 s", "process", lambda: world.stopped_agent(NODE, 60)),
        ],
    )
