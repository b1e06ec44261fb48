"""A dbus-daemon of a test's own, with the small logind of tests/fakes/logind.py on it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.standins import plan as system_bus

ROOT = Path(__file__).parents[2]
DAEMON = shutil.which("dbus-daemon")


@dataclass(frozen=True)
class PrivateBus:
    """Its address, and where its logind reads drop-ins."""

    address: str
    conf_dir: str

    def ask(self, interface: str, member: str, *arguments: str, enter: Sequence[str] = ()) -> str:
        """A call of logind's object, as dbus-send prints the answer."""
        argv = [*enter, "dbus-send", f"--bus={self.address}", "--print-reply=literal", "--dest=org.freedesktop.login1"]
        argv += ["/org/freedesktop/login1", f"{interface}.{member}", *arguments]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=20).stdout.strip()

    def powered_off(self, enter: Sequence[str] = ()) -> float:
        """When the machine went (wall seconds); 0.0: not yet."""
        words = ("string:test.Machine", "string:PoweredOff")
        return int(self.ask("org.freedesktop.DBus.Properties", "Get", *words, enter=enter).split()[-1]) / 1000

    def power_off(self, enter: Sequence[str] = ()) -> None:
        self.ask("org.freedesktop.login1.Manager", "PowerOff", "boolean:false", enter=enter)

    def cancel(self, enter: Sequence[str] = ()) -> None:
        self.ask("test.Machine", "Cancel", enter=enter)

    def locks(self, enter: Sequence[str] = ()) -> int:
        return int(self.ask("test.Machine", "Locks", enter=enter).split()[-1])


@contextlib.contextmanager
def private_bus(folder: Path, socket: str = "", enter: Sequence[str] = (), delay: int = 0) -> Iterator[PrivateBus]:
    """`enter`: a prefix that runs a command in other namespaces; `socket`: the path there; `delay`: seconds that
    logind waits from the beginning."""
    assert DAEMON is not None
    path = socket or str(folder / "bus")
    conf_dir, config = folder / "logind.conf.d", folder / "bus.conf"
    config.write_text(system_bus.config(path))
    if delay:
        conf_dir.mkdir()
        (conf_dir / "50-test.conf").write_text(f"[Login]\nInhibitDelayMaxSec={delay}\n")
    bus = PrivateBus(f"unix:path={path}", str(conf_dir))
    started: list[subprocess.Popen[bytes]] = []
    try:
        daemon = [*enter, DAEMON, f"--config-file={config}", "--nofork", "--nopidfile", "--print-address=1"]
        started.append(subprocess.Popen(daemon, stdout=subprocess.PIPE, start_new_session=True))
        _line(started[-1])
        logind = [*enter, sys.executable, "-m", "tests.fakes.logind", bus.address, str(conf_dir)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        started.append(subprocess.Popen(logind, stdout=subprocess.PIPE, cwd=ROOT, env=env, start_new_session=True))
        _line(started[-1])
        yield bus
    finally:
        for one in reversed(started):
            os.killpg(one.pid, signal.SIGTERM)  # of nsenter(1) too, and of its child in another PID namespace
            one.wait(10)


def _line(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline(), "it ended before it was ready"
