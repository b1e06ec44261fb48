"""systemd's and logind's interfaces on a real bus, with the programs of a real supervisor as units."""

from __future__ import annotations

import asyncio
import os
import socket as socketlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dbus_fast import BusType, Message, MessageType
from dbus_fast.aio import MessageBus

from controlplane.standins import plan, system_bus
from controlplane.supervisor.edge import units
from controlplane.supervisor.model import Program
from tests.fakes.private_bus import DAEMON
from tests.waiting import until_sync

PROJECT = str(Path(__file__).resolve().parents[4])
_SYSTEMD, _LOGIND = "org.freedesktop.systemd1", "org.freedesktop.login1"

needs_bus = pytest.mark.skipif(DAEMON is None, reason="dbus-daemon is not installed")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    socket, config = tmp_path / "bus", tmp_path / "bus.conf"
    config.write_text(plan.config(str(socket)))
    assert DAEMON is not None
    daemon = subprocess.Popen([DAEMON, f"--config-file={config}", "--nofork", "--nopidfile"])
    try:
        until_sync(socket.exists)
        yield f"unix:path={socket}"
    finally:
        daemon.terminate()
        daemon.wait(10)


class Client:
    def __init__(self, bus: MessageBus) -> None:
        self.bus = bus
        self.removed: asyncio.Queue[list[Any]] = asyncio.Queue()
        bus.add_message_handler(self._received)

    def _received(self, message: Message) -> None:
        if message.member == "JobRemoved" and message.signature == "uoss":
            self.removed.put_nowait(message.body)

    async def ask(self, service: str, member: str, signature: str, *body: Any, interface: str = "") -> Message:
        path = f"/{service.replace('.', '/')}"
        answer = await self.bus.call(
            Message(service, path, interface or f"{service}.Manager", member, signature=signature, body=list(body))
        )
        assert answer is not None
        return answer


@needs_bus
async def test_units_are_the_programs_of_the_supervisor(tmp_path: Path, address: str) -> None:
    folder, log = str(tmp_path / "unit"), str(tmp_path / "log" / "supervisor.log")
    program = Program("containerd", ("/bin/sleep", "600"), str(tmp_path / "log" / "containerd.log"), {}, 3)
    units.write_spec(folder, cgroups=(), namespaces=(), programs=[program])
    units.ensure_supervisor(folder, log, PROJECT)
    served = await system_bus.serve(folder, address)
    client = Client(await MessageBus(bus_address=address, bus_type=BusType.SYSTEM).connect())
    rule = f"type='signal', interface='{_SYSTEMD}.Manager', member='JobRemoved'"
    dbus = "org.freedesktop.DBus"
    try:
        await client.ask(dbus, "AddMatch", "s", rule, interface=dbus)
        await asyncio.to_thread(until_sync, lambda: units.programs(folder).get("containerd", {}).get("alive"))
        pid = units.programs(folder)["containerd"]["pid"]
        answer = await client.ask(_SYSTEMD, "GetUnitByPID", "u", pid)
        assert answer.body == ["/org/freedesktop/systemd1/unit/containerd_2eservice"]
        assert (await client.ask(_SYSTEMD, "GetUnitByPID", "u", os.getpid())).message_type is MessageType.ERROR
        for verb, alive in (("StopUnit", False), ("StartUnit", True), ("RestartUnit", True)):
            (job,) = (await client.ask(_SYSTEMD, verb, "ss", "containerd.service", "replace")).body
            removed = await asyncio.wait_for(client.removed.get(), 60)
            assert removed[1:] == [job, "containerd.service", "done"]
            assert bool(units.programs(folder)["containerd"]["alive"]) is alive, verb
        await client.ask(_SYSTEMD, "StopUnit", "ss", "nobody.service", "replace")
        assert (await asyncio.wait_for(client.removed.get(), 60))[2:] == ["nobody.service", "failed"]
    finally:
        client.bus.disconnect()
        served.disconnect()
        supervisor = units.supervisor_pid(folder)
        if supervisor:
            os.kill(supervisor, 15)
            await asyncio.to_thread(until_sync, lambda: not units.supervisor_pid(folder))


@needs_bus
async def test_a_kubelet_gets_its_lock_and_need_not_change_the_machine(tmp_path: Path, address: str) -> None:
    served = await system_bus.serve(str(tmp_path), address)
    bus = await MessageBus(bus_address=address, bus_type=BusType.SYSTEM, negotiate_unix_fd=True).connect()
    client = Client(bus)
    try:
        properties = "org.freedesktop.DBus.Properties"
        names = (f"{_LOGIND}.Manager", "InhibitDelayMaxUSec")
        answer = await client.ask(_LOGIND, "Get", "ss", *names, interface=properties)
        assert answer.body[0].value >= 600_000_000
        lock = await client.ask(_LOGIND, "Inhibit", "ssss", "shutdown", "kubelet", "why", "delay")
        assert lock.unix_fds
        os.close(lock.unix_fds[lock.body[0]])
        reread = await client.ask(_SYSTEMD, "KillUnit", "ssi", "systemd-logind.service", "all", 1)
        assert reread.message_type is MessageType.METHOD_RETURN
        other = await client.ask(_SYSTEMD, "KillUnit", "ssi", "ssh.service", "all", 1)
        assert other.message_type is MessageType.ERROR
    finally:
        bus.disconnect()
        served.disconnect()


@needs_bus
def test_the_bus_comes_up_where_its_folder_is_missing_and_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket, config = tmp_path / "dbus" / "socket", tmp_path / "bus.conf"
    monkeypatch.setattr(plan, "SOCKET", str(socket))
    config.write_text(plan.config(str(socket)))
    bus, stand_in = plan.programs(str(DAEMON), str(config), "/unit", python="py", environment={}, logs="/log")
    assert stand_in.argv == ("py", "-m", "controlplane.standins.system_bus", "/unit", f"unix:path={socket}")
    for _ in range(2):
        daemon = subprocess.Popen(bus.argv)
        until_sync(lambda: _answers(socket))
        daemon.kill()
        daemon.wait(10)
        assert socket.exists(), "what a killed bus leaves is no obstacle for the next"


def _answers(path: Path) -> bool:
    with socketlib.socket(socketlib.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
