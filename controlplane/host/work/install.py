"""`install` puts our daemons on a host; `uninstall` removes them and leaves nothing behind.

Everything is recorded before it is done, so that an interrupted `install` can be undone too. With a root other than /
only files are written, as for an image.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.host.plan import host_files as plan
from controlplane.machine.edge import files
from nodelib import command
from nodelib.errors import Conflict, NodewrightError

_SYSTEMD = "/run/systemd/system"


@dataclass(slots=True)
class Done:
    """What was written, removed and set; `kept`: files that somebody has changed since."""

    files: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    sysctls: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


async def install(project: str, root: str = "/", environment: Mapping[str, str] | None = None) -> Done:
    """Install the files and start the daemons. Raises Conflict, before any change, if a file of another owner exists.

    `environment`: see host_files.
    """
    wanted, record = plan.host_files(project, environment), _record(root)
    foreign = [one.path for one in wanted if os.path.lexists(_at(root, one.path)) and one.path not in record["files"]]
    if foreign:
        raise Conflict(
            f"already has files that are not ours: {', '.join(foreign)}",
            obj="host",
            step="install",
            action="Remove the package they belong to (kubelet, kube-proxy), then run this again.",
        )
    live = os.path.abspath(root) == "/"
    record["files"] |= {one.path: one.digest for one in wanted}
    record["dirs"] += [path for one in wanted for path in _missing(root, one.path) if path not in record["dirs"]]
    if live:
        record["sysctls"] |= {key: _sysctl(key) for key in plan.SYSCTLS if key not in record["sysctls"]}
    files.write(_at(root, plan.RECORD), json.dumps(record, indent=1), 0o644)
    done = Done([one.path for one in wanted])
    for one in wanted:
        files.write(_at(root, one.path), one.text, one.mode)
    if live:
        await _apply(done)
    return done


async def uninstall(root: str = "/") -> Done:
    """Undo `install`. Files that were changed by hand are kept and reported. Does nothing if nothing is installed."""
    record, done = _record(root), Done()
    if os.path.abspath(root) == "/" and record["files"]:
        await _stop(done)
    for path, wanted in record["files"].items():
        _remove(root, path, wanted, done)
    for key, before in record["sysctls"].items():
        with contextlib.suppress(OSError):
            _set_sysctl(key, before)
            done.sysctls[key] = before
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_at(root, plan.RECORD))
    for path in sorted([*record["dirs"], os.path.dirname(plan.RECORD)], key=len, reverse=True):
        with contextlib.suppress(OSError):  # somebody else uses it by now
            os.rmdir(_at(root, path))
    if os.path.abspath(root) == "/" and os.path.isdir(_SYSTEMD):
        await _run(done, "systemctl", "daemon-reload")
    return done


def _remove(root: str, path: str, wanted: str, done: Done) -> None:
    place = _at(root, path)
    try:
        with open(place, "rb") as file:
            same = plan.digest(file.read()) == wanted
    except FileNotFoundError:
        return
    if same:
        os.unlink(place)
        done.files.append(path)
    else:
        done.kept.append(path)


async def _apply(done: Done) -> None:
    for name in plan.MODULES:
        await _run(done, "modprobe", name)
    for key, value in plan.SYSCTLS.items():
        try:
            _set_sysctl(key, value)
            done.sysctls[key] = value
        except OSError as error:
            done.notes.append(f"sysctl {key} cannot be set now: {error.strerror}")
    if os.path.isdir(_SYSTEMD):
        await _run(done, "systemctl", "daemon-reload")
        await _run(done, "systemctl", "enable", "--now", *plan.ENABLED)
    else:
        done.notes.append("systemd is not running here: the units take effect when it is")


async def _stop(done: Done) -> None:
    if os.path.isdir(_SYSTEMD):
        await _run(done, "systemctl", "disable", "--now", *plan.ENABLED, "nodewright-proxy.service")


async def _run(done: Done, *argv: str) -> None:
    if not shutil.which(argv[0]):
        done.notes.append(f"{argv[0]} is not installed: `{' '.join(argv)}` was not run")
        return
    try:
        await command.run(argv, timeout=120)
    except NodewrightError as error:
        done.notes.append(str(error))


def _record(root: str) -> dict[str, Any]:
    try:
        with open(_at(root, plan.RECORD), encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return {"files": {}, "dirs": [], "sysctls": {}}
    return found


def _missing(root: str, path: str) -> list[str]:
    missing = []
    folder = os.path.dirname(path)
    while folder != "/" and not os.path.isdir(_at(root, folder)):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def _at(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))


def _sysctl(key: str) -> str:
    try:
        with open(f"/proc/sys/{key.replace('.', '/')}", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "0"


def _set_sysctl(key: str, value: str) -> None:
    with open(f"/proc/sys/{key.replace('.', '/')}", "w", encoding="ascii") as file:
        file.write(value)
