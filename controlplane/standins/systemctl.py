"""systemctl where there is no systemd: its verbs act on the programs of the node's supervisor.

`python -S -m controlplane.standins.systemctl DIR VERB [UNIT]`. On a node of `up --kubeadm`, kubeadm uses it for the
unit `kubelet` only (cmd/kubeadm/app/util/initsystem); whoever works on the node by hand has the same few verbs. On the
node of the e2e_node suite, tests list, kill and restart the kubelet that systemd_run.py started.
"""

from __future__ import annotations

import fnmatch
import os
import signal
import sys
import time

from controlplane.supervisor.edge import units

_UNITS = {"kubelet": "agent", "containerd": "containerd", "kube-proxy": "proxy"}
_PATIENCE = 30.0  # seconds for a program to start or stop


def main(argv: list[str]) -> int:
    """Exit status as systemctl's: 0 done or active, 3 not active, 4 no such unit."""
    folder, words = argv[0], [word for word in argv[1:] if not word.startswith("-")]
    verb, unit = [*words, "", ""][:2]
    if verb in ("daemon-reload", "enable", "disable", "reset-failed"):
        return 0
    if verb == "list-units":
        return _list_units(folder, unit or "*", only_running="--state=running" in argv)
    base = unit.removesuffix(".service")
    name = _UNITS.get(base, base)
    if name not in units.program_names(folder):
        print(f"Unit {unit}.service could not be found.")
        return 4
    if verb in _VERBS:
        return _VERBS[verb](folder, name)
    print(f"systemctl {verb}: this stand-in for systemctl does not know that verb", file=sys.stderr)
    return 1


def _list_units(folder: str, pattern: str, *, only_running: bool) -> int:
    for name in units.program_names(folder):
        running = _state(folder, name) == "active"
        if fnmatch.fnmatch(f"{name}.service", pattern) and (running or not only_running):
            print(f"  {name}.service loaded {'active running' if running else 'inactive dead'} {name}")
    return 0


def _start(folder: str, name: str) -> int:
    _mark(folder, name, stopped=False)
    return _until(folder, name, alive=True)


def _stop(folder: str, name: str) -> int:
    _mark(folder, name, stopped=True)
    return _until(folder, name, alive=False)


def _restart(folder: str, name: str) -> int:
    return _stop(folder, name) or _start(folder, name)


def _is_active(folder: str, name: str) -> int:
    state = _state(folder, name)
    print(state)
    return 0 if state == "active" else 3


def _is_enabled(folder: str, name: str) -> int:
    print("enabled")
    return 0


def _status(folder: str, name: str) -> int:
    state = _state(folder, name)
    row = units.programs(folder).get(name, {})
    print(f"* {name}.service\n   Loaded: loaded (nodewright supervisor; enabled)\n   Active: {state}")
    print(f"   Main PID: {row.get('pid', 0)}, started {row.get('starts', 0)} times, {row.get('last_exit', '')}")
    return 0 if state == "active" else 3


def _state(folder: str, name: str) -> str:
    if units.programs(folder).get(name, {}).get("alive"):
        return "active"
    return "inactive" if os.path.exists(_marker(folder, name)) else "activating"


def _mark(folder: str, name: str, *, stopped: bool) -> None:
    path = _marker(folder, name)
    if stopped:
        with open(path, "a", encoding="ascii"):
            pass
    elif os.path.exists(path):
        os.unlink(path)
    pid = units.supervisor_pid(folder)
    if pid:
        os.kill(pid, signal.SIGHUP)


def _marker(folder: str, name: str) -> str:
    return os.path.join(folder, f"stopped.{name}")


def _until(folder: str, name: str, *, alive: bool) -> int:
    deadline = time.monotonic() + _PATIENCE
    while bool(units.programs(folder).get(name, {}).get("alive")) is not alive:
        if time.monotonic() > deadline:
            print(f"{name}: {'not started' if alive else 'still running'} after {_PATIENCE:g} s", file=sys.stderr)
            return 1
        time.sleep(0.02)
    return 0


_VERBS = {
    "start": _start,
    "stop": _stop,
    "kill": _stop,  # the supervisor does not restart it, as with a unit of Restart=no
    "restart": _restart,
    "is-active": _is_active,
    "is-enabled": _is_enabled,
    "status": _status,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
