"""Notifies systemd that a daemon is ready, alive or stopping (sd_notify(3), sd_watchdog_enabled(3)).

Without NOTIFY_SOCKET (no systemd, or a unit of another type) every call does nothing.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping

from nodelib.clock import Clock
from nodelib.tasks import Supervisor

log = logging.getLogger(__name__)


def notify_systemd(supervisor: Supervisor, health: Callable[[], str], clock: Clock) -> None:
    """Notify systemd that the daemon is ready, regularly that it is alive, and finally that it stops."""
    notifier = Notifier(os.environ)
    notifier.ready()

    async def stop() -> None:
        notifier.stopping()

    supervisor.on_stop("systemd", stop)
    if notifier.interval:
        supervisor.spawn("systemd-watchdog", lambda: notifier.watch(health, clock))


class Notifier:
    """The notification socket that `env` names."""

    def __init__(self, env: Mapping[str, str], *, pid: int | None = None) -> None:
        self._address = env.get("NOTIFY_SOCKET", "")
        watched = env.get("WATCHDOG_PID", "") in ("", str(os.getpid() if pid is None else pid))
        text = env.get("WATCHDOG_USEC", "")
        self.interval = int(text) / 2e6 if watched and text.isdigit() and self._address else 0.0
        """Seconds between two watchdog notifications, half of what the unit allows; 0: no watchdog."""

    def ready(self, status: str = "") -> None:
        self._send("READY=1", *([f"STATUS={status}"] if status else []))

    def stopping(self) -> None:
        self._send("STOPPING=1")

    async def watch(self, health: Callable[[], str], clock: Clock) -> None:
        """Until cancelled: notify the watchdog as long as `health()` is "", else send its text as the status only."""
        last = ""
        while self.interval:
            problem = health()
            if problem:
                self._send(f"STATUS={problem}")
            else:
                self._send("WATCHDOG=1", *(["STATUS=well again"] if last else []))
            if problem and problem != last:
                log.error("systemd's watchdog is not notified: %s", problem)
            last = problem
            await clock.sleep(self.interval)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        # An abstract name is written with @ (unix(7)).
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
                notify.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            log.warning("systemd cannot be notified (%s): %s", lines[0], error)
