"""systemd and logind on the system bus of a node that has neither.

`python -m controlplane.standins.system_bus DIR [ADDRESS]`. Tests of upstream's e2e_node suite stop and start the
container runtime through org.freedesktop.systemd1 (the units are the programs of the supervisor in DIR), and announce a
shutdown of the machine with a signal of their own; kubelets ask org.freedesktop.login1 for the lock that delays one.
https://www.freedesktop.org/software/systemd/man/latest/org.freedesktop.systemd1.html and org.freedesktop.login1.html
"""

# dbus_fast reads D-Bus signatures from annotations: no `from __future__ import annotations` here.
import asyncio
import itertools
import os
import sys
from typing import Annotated, Any

from dbus_fast import BusType, DBusError, PropertyAccess
from dbus_fast.aio import MessageBus
from dbus_fast.annotations import (
    DBusBool,
    DBusInt32,
    DBusObjectPath,
    DBusSignature,
    DBusStr,
    DBusUInt32,
    DBusUInt64,
    DBusUnixFd,
)
from dbus_fast.service import ServiceInterface, dbus_method, dbus_property, dbus_signal

from controlplane.standins import systemctl
from controlplane.supervisor.edge import units

_SYSTEMD, _LOGIND = "org.freedesktop.systemd1", "org.freedesktop.login1"
_PATHS = {_SYSTEMD: "/org/freedesktop/systemd1", _LOGIND: "/org/freedesktop/login1"}
_LONGEST_DELAY = 3_600_000_000  # microseconds: more than any test asks for, so that no kubelet writes to /etc/systemd
_SENT = 1.0  # seconds until a descriptor has certainly been sent

Removed = Annotated[list[Any], DBusSignature("uoss")]


class Systemd(ServiceInterface):
    """The part of org.freedesktop.systemd1.Manager that the suite and kubelets use."""

    def __init__(self, folder: str) -> None:
        super().__init__(f"{_SYSTEMD}.Manager")
        self._folder = folder
        self._numbers = itertools.count(1)
        self._jobs: set[asyncio.Task[None]] = set()

    @dbus_method()
    def GetUnitByPID(self, pid: DBusUInt32) -> DBusObjectPath:
        for name, row in units.programs(self._folder).items():
            if row.get("alive") and row.get("pid") == pid:
                return unit_path(f"{name}.service")
        raise DBusError(f"{_SYSTEMD}.NoUnitForPID", f"PID {pid} does not belong to any loaded unit.")

    @dbus_method()
    def StartUnit(self, unit: DBusStr, mode: DBusStr) -> DBusObjectPath:
        return self._job("start", unit)

    @dbus_method()
    def StopUnit(self, unit: DBusStr, mode: DBusStr) -> DBusObjectPath:
        return self._job("stop", unit)

    @dbus_method()
    def RestartUnit(self, unit: DBusStr, mode: DBusStr) -> DBusObjectPath:
        return self._job("restart", unit)

    @dbus_method()
    def KillUnit(self, unit: DBusStr, who: DBusStr, number: DBusInt32) -> None:
        """Kubelets make logind reload its configuration; this one has none."""
        if unit != "systemd-logind.service":
            raise DBusError(f"{_SYSTEMD}.NoSuchUnit", f"Unit {unit} not loaded.")

    @dbus_signal()
    def JobRemoved(self, number: int, path: str, unit: str, result: str) -> Removed:
        return [number, path, unit, result]

    def _job(self, verb: str, unit: str) -> str:
        number = next(self._numbers)
        path = f"{_PATHS[_SYSTEMD]}/job/{number}"
        task = asyncio.create_task(self._work(verb, unit, number, path), name=f"{verb}/{unit}")
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return path

    async def _work(self, verb: str, unit: str, number: int, path: str) -> None:
        status = await asyncio.to_thread(systemctl.main, [self._folder, verb, unit])
        self.JobRemoved(number, path, unit, "failed" if status else "done")


class Logind(ServiceInterface):
    """org.freedesktop.login1.Manager that grants inhibitor locks and never shuts down."""

    def __init__(self) -> None:
        super().__init__(f"{_LOGIND}.Manager")
        self._locks: list[int] = []

    @dbus_method()
    def Inhibit(self, what: DBusStr, who: DBusStr, why: DBusStr, mode: DBusStr) -> DBusUnixFd:
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        self._locks.append(ours)
        # The descriptor is sent with the answer; if our copy stayed open, the lock would never be released.
        asyncio.get_running_loop().call_later(_SENT, os.close, theirs)
        return theirs

    @dbus_property(access=PropertyAccess.READ)
    def InhibitDelayMaxUSec(self) -> DBusUInt64:
        return _LONGEST_DELAY

    @dbus_property(access=PropertyAccess.READ)
    def PreparingForShutdown(self) -> DBusBool:
        return False


def unit_path(unit: str) -> str:
    """The object path of a unit: all but letters and digits are escaped as _XX (sd_bus_path_encode(3))."""
    escaped = "".join(char if char.isascii() and char.isalnum() else f"_{ord(char):02x}" for char in unit)
    return f"{_PATHS[_SYSTEMD]}/unit/{escaped}"


async def serve(folder: str, address: str = "") -> MessageBus:
    """Connect to the bus and take the names; `address` "": the system bus."""
    bus = MessageBus(bus_address=address or None, bus_type=BusType.SYSTEM, negotiate_unix_fd=True)
    await bus.connect()
    bus.export(_PATHS[_SYSTEMD], Systemd(folder))
    bus.export(_PATHS[_LOGIND], Logind())
    for name in _PATHS:
        await bus.request_name(name)
    return bus


async def main(argv: list[str]) -> None:
    """Serve until the bus disconnects."""
    bus = await serve(*argv)
    await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
