"""`install` puts our daemons on a host; `uninstall` removes them and leaves nothing behind.

Everything is recorded before it is done, so that an interrupted `install` can be undone too. With a root other than /
only files are written, as for an image.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.host.edge.tree import Tree
from controlplane.host.plan import host_files as plan
from nodelib import command
from nodelib.errors import Conflict, Invalid, NodewrightError
from nodelib.files import draft_of
from nodelib.json_values import decode
from nodelib.shapes import shaped

_SYSTEMD = "/run/systemd/system"
_SHAPE = {"files": {"*": str}, "dirs": [str], "sysctls": {"*": str}}


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
    wanted = plan.host_files(project, environment)
    with Tree(root, make=True) as tree, _explained(root, "install"):
        live, record = tree.is_host, _record(tree)
        foreign = [one.path for one in wanted if one.path not in record["files"] and tree.is_there(one.path)]
        if foreign:
            raise Conflict(
                f"already has files that are not ours: {', '.join(foreign)}",
                obj="host",
                step="install",
                action="Remove the package they belong to (kubelet, kube-proxy), then run this again.",
            )
        # Until all are written, those of an earlier version are ours, too.
        known = {one.path: [*record["files"].get(one.path, "").split(), one.digest] for one in wanted}
        record["files"] |= {path: " ".join(dict.fromkeys(digests)) for path, digests in known.items()}
        record["dirs"] += [path for one in wanted for path in tree.missing(one.path) if path not in record["dirs"]]
        if live:
            record["sysctls"] |= {key: _sysctl(key) for key in plan.SYSCTLS if key not in record["sysctls"]}
        tree.write(plan.RECORD, json.dumps(record, indent=1), 0o644)
        done = Done([one.path for one in wanted])
        for one in wanted:
            tree.write(one.path, one.text, one.mode)
        record["files"] |= {one.path: one.digest for one in wanted}
        tree.write(plan.RECORD, json.dumps(record, indent=1), 0o644)
    if live:
        await _apply(done)
    return done


async def uninstall(root: str = "/") -> Done:
    """Undo `install`. Files that were changed by hand are kept and reported. Does nothing if nothing is installed."""
    done = Done()
    with Tree(root) as tree, _explained(root, "uninstall"):
        live, record = tree.is_host, _record(tree)
        if live and record["files"]:
            await _stop(done)
        for path, wanted in record["files"].items():
            _remove(tree, path, wanted, done)
        # Whoever owns another tree has written what is recorded there, and has no say in the settings of this host.
        for key, before in record["sysctls"].items() if live else ():
            with contextlib.suppress(OSError):
                _set_sysctl(key, before)
                done.sysctls[key] = before
        # The record goes as late as it can: whoever runs this again after an interruption needs it.
        _remove_folders(tree, record["dirs"])
        for path in (draft_of(plan.RECORD), plan.RECORD):
            with contextlib.suppress(FileNotFoundError):
                tree.unlink(path)
        _remove_folders(tree, [*record["dirs"], os.path.dirname(plan.RECORD)])
    if live and os.path.isdir(_SYSTEMD):
        await _run(done, "systemctl", "daemon-reload")
    return done


@contextlib.contextmanager
def _explained(root: str, step: str) -> Iterator[None]:
    """Raises Invalid for what cannot be read or written."""
    try:
        yield
    except OSError as error:
        action = "Look at what is there. `uninstall` removes what was written."
        raise Invalid(str(error), obj=root, step=step, action=action) from error


def _remove(tree: Tree, path: str, wanted: str, done: Done) -> None:
    with contextlib.suppress(OSError):  # of an install() that was killed
        tree.unlink(draft_of(path))
    found = tree.content(path)
    if found is not None and plan.digest(found) in wanted.split():
        tree.unlink(path)
        done.files.append(path)
    elif tree.is_there(path):
        done.kept.append(path)


def _remove_folders(tree: Tree, paths: Iterable[str]) -> None:
    for path in sorted(paths, key=len, reverse=True):
        with contextlib.suppress(OSError):  # somebody else uses it by now
            tree.rmdir(path)


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


def _record(tree: Tree) -> dict[str, Any]:
    """What an earlier install() has written down, as far as it is that."""
    try:
        found = shaped(decode(tree.content(plan.RECORD) or b"{}"), _SHAPE)
    except ValueError:
        found = None
    record = {"files": {}, "dirs": [], "sysctls": {}, **(found or {})}
    record["files"] = {path: digest for path, digest in record["files"].items() if _is_path(path)}
    record["dirs"] = [path for path in record["dirs"] if _is_path(path)]
    return record


def _is_path(text: str) -> bool:
    return text.startswith("/") and "\0" not in text


def _sysctl(key: str) -> str:
    try:
        with open(f"/proc/sys/{key.replace('.', '/')}", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "0"


def _set_sysctl(key: str, value: str) -> None:
    with open(f"/proc/sys/{key.replace('.', '/')}", "w", encoding="ascii") as file:
        file.write(value)
