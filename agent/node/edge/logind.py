"""systemd-logind over the system bus: inhibitor locks and announcements of a shutdown. Decides nothing.

https://systemd.io/INHIBITOR_LOCKS, org.freedesktop.login1(5), logind.conf(5).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from typing import Any

from dbus_fast import BusType, Message, MessageType
from dbus_fast.aio import MessageBus
from dbus_fast.errors import AuthError, DBusError, InvalidAddressError

from nodelib.errors import Temporary
from nodelib.tasks import cancel_and_wait

_SERVICE, _PATH, _INTERFACE = "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager"
_BUS, _BUS_PATH = "org.freedesktop.DBus", "/org/freedesktop/DBus"
_SYSTEMD, _SYSTEMD_PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
_RULE = f"type='signal',interface='{_INTERFACE}',member='PrepareForShutdown',path='{_PATH}'"
_SIGHUP = 1
_LIMIT = 10.0  # seconds for one answer


class LogindBus:
    """node/work/shutdown.py Logind. `address` "": the system bus; `conf_dir`: where logind reads drop-ins."""

    def __init__(self, address: str = "", conf_dir: str = "/etc/systemd/logind.conf.d") -> None:
        self._address, self._conf_dir = address, conf_dir
        self._bus: MessageBus | None = None
        self._announced: asyncio.Queue[bool | None] = asyncio.Queue()
        self._lock: int | None = None

    async def connect(self) -> None:
        """A fresh connection, with the signal subscribed before anything is asked."""
        self._announced = asyncio.Queue()
        try:
            bus = MessageBus(bus_address=self._address or None, bus_type=BusType.SYSTEM, negotiate_unix_fd=True)
            async with asyncio.timeout(_LIMIT):
                self._bus = await bus.connect()
        except (OSError, EOFError, TimeoutError, AuthError, InvalidAddressError, DBusError) as error:
            raise _failure(
                "connect to the system bus",
                error,
                "Run systemd-logind here, or remove shutdownGracePeriod: nothing else announces a shutdown.",
            ) from error
        self._bus.add_message_handler(self._received)
        await self._call(_BUS, _BUS_PATH, _BUS, "AddMatch", "s", [_RULE])

    async def longest_delay(self) -> float:
        """How many seconds logind waits for lock holders at most (InhibitDelayMaxUSec)."""
        return float(await self._property("InhibitDelayMaxUSec")) / 1e6

    async def allow_delay(self, seconds: float) -> None:
        """Write a drop-in that allows so many seconds and have logind read it; it takes effect a moment later."""
        await asyncio.to_thread(self._write_conf, seconds)
        await self._call(
            _SYSTEMD,
            _SYSTEMD_PATH,
            f"{_SYSTEMD}.Manager",
            "KillUnit",
            "ssi",
            ["systemd-logind.service", "all", _SIGHUP],
        )

    async def is_preparing(self) -> bool:
        return bool(await self._property("PreparingForShutdown"))

    async def inhibit(self) -> None:
        """Take the lock, then release the one that was held before."""
        body = ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"]
        answer = await self._call(_SERVICE, _PATH, _INTERFACE, "Inhibit", "ssss", body)
        before, self._lock = self._lock, answer.unix_fds[answer.body[0]]
        if before is not None:
            os.close(before)

    def release(self) -> None:
        """Let the shutdown proceed; idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def shutdowns(self) -> AsyncGenerator[bool, None]:
        """True when a shutdown begins, False when it is cancelled; ends with the connection."""
        if self._bus is None:
            return
        ended = asyncio.ensure_future(self._until_disconnected(self._bus))
        ended.add_done_callback(lambda _: self._announced.put_nowait(None))
        try:
            while (preparing := await self._announced.get()) is not None:
                yield preparing
        finally:
            await cancel_and_wait(ended)

    async def close(self) -> None:
        self.release()
        if self._bus is not None:
            self._bus.disconnect()
            self._bus = None

    async def _until_disconnected(self, bus: MessageBus) -> None:
        with contextlib.suppress(OSError, EOFError):
            await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]

    def _received(self, message: Message) -> None:
        if (message.interface, message.member) == (_INTERFACE, "PrepareForShutdown") and message.signature == "b":
            self._announced.put_nowait(bool(message.body[0]))

    def _write_conf(self, seconds: float) -> None:
        path = os.path.join(self._conf_dir, "99-kubelet.conf")
        text = f"# Written by the node agent for shutdownGracePeriod\n[Login]\nInhibitDelayMaxSec={seconds:.0f}\n"
        try:
            os.makedirs(self._conf_dir, exist_ok=True)
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
        except OSError as error:
            raise _failure(f"write {path}", error, "Set InhibitDelayMaxSec in logind.conf by hand.") from error

    async def _property(self, name: str) -> Any:
        properties = "org.freedesktop.DBus.Properties"
        answer = await self._call(_SERVICE, _PATH, properties, "Get", "ss", [_INTERFACE, name])
        return answer.body[0].value

    async def _call(
        self, destination: str, path: str, interface: str, member: str, signature: str, body: list[Any]
    ) -> Message:
        if self._bus is None:
            raise Temporary("not connected", obj="system bus", step=member)
        request = Message(
            destination=destination, path=path, interface=interface, member=member, signature=signature, body=body
        )
        try:
            async with asyncio.timeout(_LIMIT):
                answer = await self._bus.call(request)
        except (OSError, EOFError, TimeoutError, DBusError) as error:
            raise _failure(member, error) from error
        if answer is None or answer.message_type is MessageType.ERROR:
            text = str(answer.body[0]) if answer is not None and answer.body else "no answer"
            raise Temporary(
                text, obj=destination, step=member, action="Check that it is running (systemctl status systemd-logind)."
            )
        return answer


def _failure(step: str, error: Exception, action: str = "") -> Temporary:
    return Temporary(str(error) or type(error).__name__, obj="systemd-logind", step=step, action=action)
