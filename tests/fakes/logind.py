"""A small logind on a bus of its own: the interface of the real one, and a machine that only says it powers off.

`python -m tests.fakes.logind ADDRESS CONF_DIR` runs until it is killed. PowerOff(false) announces a
shutdown, waits for the holders of locks up to InhibitDelayMaxSec, and then sets `PoweredOff` of the
interface test.Machine; Cancel() of that interface calls the shutdown off.
"""

# dbus_fast reads D-Bus signatures from annotations: no `from __future__ import annotations` here.
import asyncio
import os
import re
import sys
import time
from pathlib import Path

from dbus_fast import BusType, PropertyAccess
from dbus_fast.aio import MessageBus
from dbus_fast.annotations import DBusBool, DBusInt32, DBusStr, DBusUInt64, DBusUnixFd
from dbus_fast.service import ServiceInterface, dbus_method, dbus_property, dbus_signal


class Manager(ServiceInterface):
    """org.freedesktop.login1.Manager, as far as a kubelet uses it."""

    def __init__(self, conf_dir: str) -> None:
        super().__init__("org.freedesktop.login1.Manager")
        self.conf_dir, self.delay, self.preparing = conf_dir, 5.0, False
        self.locks: list[int] = []
        self.powered_off = 0.0
        self.reload()

    def reload(self) -> None:
        for file in sorted(Path(self.conf_dir).glob("*.conf")):
            found = re.search(r"^InhibitDelayMaxSec=(\d+)$", file.read_text(), re.MULTILINE)
            self.delay = float(found[1]) if found else self.delay

    @dbus_method()
    def Inhibit(self, what: DBusStr, who: DBusStr, why: DBusStr, mode: DBusStr) -> DBusUnixFd:
        assert (what, mode) == ("shutdown", "delay")
        ours, theirs = os.pipe()
        self.locks.append(ours)
        # Sent with the answer: this side's copy would keep the lock for ever.
        asyncio.get_running_loop().call_later(0.2, os.close, theirs)
        return theirs

    @dbus_property(access=PropertyAccess.READ)
    def InhibitDelayMaxUSec(self) -> DBusUInt64:
        return int(self.delay * 1e6)

    @dbus_property(access=PropertyAccess.READ)
    def PreparingForShutdown(self) -> DBusBool:
        return self.preparing

    @dbus_signal()
    def PrepareForShutdown(self, start: bool) -> DBusBool:
        return start

    @dbus_method()
    async def PowerOff(self, interactive: DBusBool) -> None:
        self.preparing = True
        self.PrepareForShutdown(True)
        self.waiting = asyncio.create_task(self._wait())

    def cancel(self) -> None:
        self.preparing, self.powered_off = False, 0.0
        self.PrepareForShutdown(False)

    async def _wait(self) -> None:
        end = time.monotonic() + self.delay
        loop = asyncio.get_running_loop()
        for lock in self.locks:
            released = asyncio.Event()
            loop.add_reader(lock, released.set)
            try:
                await asyncio.wait_for(released.wait(), max(0.0, end - time.monotonic()))
            except TimeoutError:
                continue
            finally:
                loop.remove_reader(lock)
        self.locks.clear()
        self.powered_off = time.time()


class Systemd(ServiceInterface):
    """org.freedesktop.systemd1.Manager: SIGHUP for logind."""

    def __init__(self, logind: Manager) -> None:
        super().__init__("org.freedesktop.systemd1.Manager")
        self.logind = logind

    @dbus_method()
    def KillUnit(self, unit: DBusStr, who: DBusStr, number: DBusInt32) -> None:
        assert (unit, number) == ("systemd-logind.service", 1)
        self.logind.reload()


class Machine(ServiceInterface):
    """What a test asks the machine."""

    def __init__(self, logind: Manager) -> None:
        super().__init__("test.Machine")
        self.logind = logind

    @dbus_property(access=PropertyAccess.READ)
    def PoweredOff(self) -> DBusUInt64:
        """Milliseconds since the epoch, 0: it runs."""
        return int(self.logind.powered_off * 1000)

    @dbus_method()
    def Cancel(self) -> None:
        self.logind.cancel()

    @dbus_method()
    def Locks(self) -> DBusInt32:
        return len(self.logind.locks)


async def serve(address: str, conf_dir: str) -> MessageBus:
    """On the bus when this returns."""
    bus = await MessageBus(bus_address=address, bus_type=BusType.SYSTEM, negotiate_unix_fd=True).connect()
    logind = Manager(conf_dir)
    bus.export("/org/freedesktop/login1", logind)
    bus.export("/org/freedesktop/login1", Machine(logind))
    bus.export("/org/freedesktop/systemd1", Systemd(logind))
    for name in ("org.freedesktop.login1", "org.freedesktop.systemd1"):
        await bus.request_name(name)
    return bus


async def main() -> None:
    bus = await serve(sys.argv[1], sys.argv[2])
    print("ready", flush=True)
    await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    asyncio.run(main())
