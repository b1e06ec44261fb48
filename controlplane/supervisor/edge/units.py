"""Supervisors from outside: start, reload and query them. A unit is a node or the control plane.

A node has PIDs of its own: its supervisor writes down those, and every pid that a function here returns is the one that
the caller can use. Inside of the node the two are the same, as the lock of its process 1 is not to be seen there.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from controlplane.machine.edge import files, process_one
from controlplane.supervisor.edge.procfs import read_json, read_state, start_time
from controlplane.supervisor.model import Program
from nodelib.errors import Temporary
from nodelib.files import no_link

_PATIENCE = 60  # seconds until a supervisor has its lock; one that ended is noticed at once
_LOCK_IS_TAKEN = 3  # exit status of a supervisor when another one has the lock


def write_spec(
    folder: str,
    *,
    cgroups: Sequence[str],
    namespaces: Sequence[tuple[str, str]],
    programs: Sequence[Program],
    snapshots: str = "",
) -> bool:
    """Write what the supervisor of `folder` should run. False if the file is already the same.

    `snapshots`: the folder of containerd's snapshots, on which layers are mounted (machine/edge/layers.py).
    """
    spec = {
        "cgroups": list(cgroups),
        "namespaces": [list(pair) for pair in namespaces],
        "programs": [program.to_json() for program in programs],
        **({"snapshots": snapshots} if snapshots else {}),
    }
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for program in programs:
        os.makedirs(os.path.dirname(program.log), exist_ok=True)
    return files.write_if_changed(os.path.join(folder, "spec.json"), json.dumps(spec, indent=1))


def add_program(folder: str, program: Program) -> None:
    """Add a program to a unit's existing specification, or replace the one of its name."""
    path = os.path.join(folder, "spec.json")
    spec = read_json(path)
    others = [entry for entry in spec["programs"] if entry["name"] != program.name]
    spec["programs"] = [*others, program.to_json()]
    os.makedirs(os.path.dirname(program.log), exist_ok=True)
    files.write(path, json.dumps(spec, indent=1), 0o600)


def program_names(folder: str) -> list[str]:
    """Names of the programs in the supervisor's specification."""
    return [str(entry["name"]) for entry in _specified(folder)]


def arguments(folder: str, program: str) -> list[str]:
    """The command line of a program in the supervisor's specification; empty for an unknown program."""
    return next((list(map(str, entry["argv"])) for entry in _specified(folder) if entry["name"] == program), [])


def _specified(folder: str) -> list[dict[str, Any]]:
    """The programs of a specification, as far as they are some."""
    try:
        found = read_json(os.path.join(folder, "spec.json")).get("programs")
    except PermissionError:
        raise
    except (OSError, ValueError, RecursionError):
        return []
    listed = found if isinstance(found, list) else []
    return [one for one in listed if isinstance(one, dict) and "name" in one and isinstance(one.get("argv"), list)]


def keep_stopped(folder: str, program: str) -> None:
    """Keep a program from being started until somebody starts it (controlplane.standins.systemctl)."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, f"stopped.{program}"), "a", encoding="ascii"):
        pass


def let_start(folder: str) -> None:
    """Take back each keep_stopped()."""
    for name in os.listdir(folder):
        if name.startswith("stopped."):
            os.unlink(os.path.join(folder, name))


def machine_lock(folder: str) -> str:
    """The file that process 1 of a node holds locked, beside the unit's folder, where the node does not see it."""
    return os.path.join(os.path.dirname(folder), "process-1.lock")


def _usable(folder: str, pid: int) -> int:
    lock = machine_lock(folder)
    if not pid or not process_one.is_machine(lock):
        return pid
    one = process_one.alive(lock)
    return process_one.outer_pid(one, pid) if one else 0


def supervisor_pid(folder: str) -> int:
    """The pid of the running supervisor of `folder`, 0 if there is none."""
    # In a node's folder, pods that are root there may put anything in its place: a link, a folder, a pipe.
    try:
        handle = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except PermissionError:
        raise
    except OSError:
        return 0
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return 0
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(handle, 32, 0)
        return _usable(folder, int(text)) if text.strip().isdigit() else 0
    finally:
        os.close(handle)
    return 0


def ensure_supervisor(folder: str, log: str, project: str) -> bool:
    """Ensure a running supervisor that has read the current specification. True if one had to be started.

    That of a node is started by the node's process 1. Raises Temporary when it does not start.
    """
    if process_one.is_machine(machine_lock(folder)):
        return _ensure_in_node(folder, log)
    pid = supervisor_pid(folder)
    if pid:
        os.kill(pid, signal.SIGHUP)
        return False
    os.makedirs(os.path.dirname(log), exist_ok=True)
    with open(log, "ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-S", "-m", "controlplane.supervisor", folder],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(os.environ, PYTHONPATH=project),
            cwd="/",
            start_new_session=True,
        )
    deadline = time.monotonic() + _PATIENCE
    while not supervisor_pid(folder):
        ended = child.poll() not in (None, _LOCK_IS_TAKEN)
        if ended or time.monotonic() > deadline:
            late = f"the supervisor has not taken its lock within {_PATIENCE} s"
            raise _not_started(
                folder, log, f"the supervisor exited with status {child.returncode}" if ended else late, ended=ended
            )
        time.sleep(0.005)
    return True


def _ensure_in_node(folder: str, log: str) -> bool:
    one, running = process_one.alive(machine_lock(folder)), supervisor_pid(folder)
    if one:
        os.kill(one, signal.SIGHUP)
        os.kill(one, signal.SIGCONT)  # an interrupted `stop` had it wait
    deadline = time.monotonic() + _PATIENCE
    while not supervisor_pid(folder):
        is_gone = not process_one.alive(machine_lock(folder))
        if is_gone or time.monotonic() > deadline:
            late = f"process 1 of the node has not started its supervisor within {_PATIENCE} s"
            raise _not_started(folder, log, "process 1 of the node ended" if is_gone else late, ended=is_gone)
        time.sleep(0.005)
    return not running


def _not_started(folder: str, log: str, what: str, *, ended: bool) -> Temporary:
    action = "Run `up` again." if ended else "Run `up` again; if this machine is busy, end other work first."
    return Temporary(f"{what}: {tail(log, 3)}", obj=folder, step="start supervisor", action=action)


def programs(folder: str) -> dict[str, dict[str, Any]]:
    """Rows of state.json by program name, each with its current "alive"."""
    rows = read_state(folder)
    for row in rows.values():
        row["pid"] = _usable(folder, int(row["pid"]))
        row["alive"] = bool(row["pid"]) and start_time(int(row["pid"])) == row["start_time"]
    return rows


def tail(path: str, lines: int) -> str:
    """The last lines of a log, joined by " | "."""
    text = end_of(path, 4096) or "(no log)"
    return " | ".join(text.strip().splitlines()[-lines:])


def end_of(path: str, size: int) -> str:
    """The last `size` bytes of a log, "" if it cannot be read."""
    try:
        with open(path, "rb", opener=no_link) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def terminate(folder: str, program: str) -> None:
    """Send SIGTERM to a program of the unit if it is running; its supervisor restarts it."""
    row = programs(folder).get(program)
    if row and row["alive"]:
        os.kill(int(row["pid"]), signal.SIGTERM)


def kill_supervisor(folder: str) -> int:
    """SIGKILL the unit's supervisor, so that nothing is restarted. Its programs keep running. Returns how many died."""
    pid = supervisor_pid(folder)
    if not pid:
        return 0
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(5000)
    finally:
        os.close(handle)
    return 1
