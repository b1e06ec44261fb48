"""`leave` after something was killed, and `join` after a `leave` that was."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.host.model import KnownCluster, Request
from controlplane.host.work import join_programs
from controlplane.host.work.leave import stop_daemons
from controlplane.supervisor.edge import units
from nodelib.clock import SystemClock
from nodelib.kube.access import ClusterAccess
from tests.unit.controlplane.supervisor.test_supervisor import PROJECT, Unit
from tests.waiting import until_sync


@pytest.fixture
def unit(tmp_path: Path) -> Iterator[Unit]:
    made = Unit(tmp_path)
    made.want(*(made.program(name, "exec sleep 600") for name in ("containerd", "agent")))
    until_sync(lambda: made.pid("agent") and made.pid("containerd"))
    left = [made.pid("agent"), made.pid("containerd")]
    yield made
    if pid := units.supervisor_pid(made.folder):
        os.kill(pid, signal.SIGTERM)
        until_sync(lambda: not units.supervisor_pid(made.folder))
    for pid in left:
        if os.path.exists(f"/proc/{pid}") and b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


async def test_leave_stops_daemons_whose_supervisor_was_killed(unit: Unit) -> None:
    """It said that this machine is no longer a node, while the agent went on without its files, and the Node Ready."""
    assert units.kill_supervisor(unit.folder) == 1
    assert unit.pid("agent")
    await stop_daemons(unit.folder, PROJECT, SystemClock())
    assert not unit.pid("agent") and unit.pid("containerd"), "the runtime is needed to remove the pods"


async def test_leave_stops_daemons(unit: Unit) -> None:
    assert await stop_daemons(unit.folder, PROJECT, SystemClock()) == units.supervisor_pid(unit.folder)
    assert not unit.pid("agent") and unit.pid("containerd")


async def test_nothing_is_started_to_leave(tmp_path: Path) -> None:
    assert await stop_daemons(str(tmp_path), PROJECT, SystemClock()) == 0
    assert not units.supervisor_pid(str(tmp_path))


async def test_join_starts_what_an_interrupted_leave_has_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for three minutes for a certificate that no agent asked for."""
    units.keep_stopped(str(tmp_path), "agent")
    monkeypatch.setattr(join_programs, "FOLDER", str(tmp_path))
    started = list[list[str]]()
    monkeypatch.setattr(units, "ensure_supervisor", lambda folder, *_: started.append(os.listdir(folder)))
    request = Request(runtime="unix:///run/crio.sock", python="/usr/bin/python3", project=PROJECT, node="n1")
    join_programs.start(request, KnownCluster(ClusterAccess("https://x")), "none", "none")
    assert started == [["spec.json"]]
