"""A supervisor may take a minute to start on a busy machine: nobody who waits for it keeps the event loop meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan import components
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.work import control_plane, host_ports
from controlplane.config.model import Port
from tests.fakes.clock import FakeClock

_TOOLS = Tools({name: f"/bin/{name}" for name in components.needed(Options())}, "/venv/python", "/project")


async def _storage(cluster: Cluster) -> None:
    await control_plane.start_storage(cluster, _TOOLS, FakeClock())


async def _controllers(cluster: Cluster) -> None:
    await control_plane.start_controllers(cluster, _TOOLS)


async def _ports(cluster: Cluster) -> None:
    options = cluster.options
    custom = replace(options.custom, ports=(Port(8080, 80, node="node1"),))
    await host_ports.ensure(replace(cluster, options=replace(options, custom=custom)), _TOOLS, FakeClock())


@pytest.mark.parametrize("start", [_storage, _controllers, _ports])
async def test_a_supervisor_is_waited_for_in_a_thread(
    start: Callable[[Cluster], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def noted(*_: object) -> None:
        threads.append(threading.current_thread())

    monkeypatch.setattr(control_plane, "start_unit", noted)
    monkeypatch.setattr(host_ports, "start_unit", noted)
    monkeypatch.setattr(host_ports, "_listens", lambda port: True)
    await start(Cluster("lab", "10.89.3.0/24", root=str(tmp_path)))
    assert threads and threading.main_thread() not in threads
