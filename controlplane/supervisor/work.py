"""The process that keeps the daemons of one node (or of the control plane) running, as systemd would.

`python -S -m controlplane.supervisor DIR` enters the cgroups and namespaces that DIR/spec.json names (none in a node,
where process 1 starts it: controlplane/machine/edge/init.py), starts the programs listed there with their output in log
files, and restarts those that exit. Invariants:
- It holds DIR/lock (flock) as long as it lives: there is never a second one, and nobody needs to guess from a pid.
- DIR/state.json always says which pid is which program (with its start time, as pids are reused), so a new supervisor
  takes over the programs of one that was killed, and they keep running.
- SIGHUP: read spec.json again; stop what was removed from it, restart what changed, start what is new.
- SIGTERM: stop all programs in reverse order and exit. SIGKILL of the supervisor stops none of them.
It uses only the standard library, which saves 10 MB of memory for each node.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
import time
from typing import Any

from controlplane.machine.edge import layers, nsinit
from controlplane.supervisor.edge.logs import keep_small
from controlplane.supervisor.edge.procfs import read_state, start_time
from controlplane.supervisor.model import Program
from controlplane.supervisor.plan import State, after_exit, decide
from nodelib import files

_ATTEMPTS = 5  # to take the lock
_KEEP_LOG = 32 * 1024 * 1024  # bytes; the end of a longer log is kept beside it
_LOOK_AROUND = 30.0  # seconds between looks at logs and layers


class Supervisor:
    """Owns the processes of one unit. All waiting happens in `run`, on pidfds and a signal pipe."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.wanted: dict[str, Program] = {}
        self.snapshots = ""
        self.states: dict[str, State] = {}
        self.pidfds: dict[str, int] = {}
        self.last_exit: dict[str, str] = {}
        self.stopping = False
        self.reload = True

    def run(self) -> None:
        """Until SIGTERM."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))  # process 1 of a node starts us with it blocked
        self._adopt()
        while not self.stopping:
            if self.reload:
                self.reload = False
                self.wanted, self.snapshots = read_programs(self.folder), read_snapshots(self.folder)
            self._wait(wake_read, self._step())
        for name in reversed(list(self.states)):
            self._stop(name)

    def _on_stop(self, *_: object) -> None:
        self.stopping = True

    def _on_reload(self, *_: object) -> None:
        self.reload = True

    def _step(self) -> float | None:
        now = time.monotonic()
        decision = decide(self.wanted, self.states, now)
        for name in reversed(decision.stop):
            self._stop(name)
            self.states.pop(name, None)
        for name in decision.start:
            self._start(self.wanted[name])
        if decision.stop:
            return 0.0
        self._keep_logs_small()
        self._release_layers()
        return _LOOK_AROUND if decision.wake_at is None else min(_LOOK_AROUND, max(0.0, decision.wake_at - now))

    def _keep_logs_small(self) -> None:
        for path in {program.log for program in self.wanted.values()}:
            try:
                if keep_small(path, _KEEP_LOG):
                    say(f"{path}: longer than {_KEEP_LOG} bytes, its end is in {path}.1")
            except FileNotFoundError:
                continue
            except OSError as error:
                say(f"{path}: cannot be rotated: {error}")

    def _release_layers(self) -> None:
        try:
            gone = layers.release(self.snapshots) if self.snapshots else []
        except OSError as error:
            say(f"layers of removed images cannot be unmounted: {error}")
        else:
            if gone:
                say(f"unmounted {len(gone)} layers of images that containerd has removed")

    def _wait(self, wake: int, seconds: float | None) -> None:
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        for handle in self.pidfds.values():
            poll.register(handle, select.POLLIN)
        ready = {handle for handle, _ in poll.poll(None if seconds is None else seconds * 1000 + 1)}
        if wake in ready:
            os.read(wake, 4096)
        for name, handle in list(self.pidfds.items()):
            if handle in ready:
                self._ended(name)

    def _start(self, program: Program) -> None:
        starts = self.states.get(program.name, State()).starts + 1
        now = time.monotonic()
        try:
            pid = spawn(program)
        except OSError as error:
            say(f"{program.name}: cannot start {program.argv[0]}: {error}")
            self.last_exit[program.name] = f"cannot start: {error}"
            failed = State(started_at=now, pause=self.states.get(program.name, State()).pause, starts=starts)
            self.states[program.name] = after_exit(failed, now)
        else:
            self.pidfds[program.name] = os.pidfd_open(pid)
            old = self.states.get(program.name, State())
            self.states[program.name] = State(pid, program.digest, now, 0.0, old.pause, starts)
            say(f"{program.name}: started, pid {pid}")
        self._save()

    def _ended(self, name: str) -> None:
        state = self.states[name]
        how = reap(state.pid)
        os.close(self.pidfds.pop(name))
        self.states[name] = after_exit(state, time.monotonic(), killed=how == signal.SIGKILL.name)
        self.last_exit[name] = how
        say(f"{name}: pid {state.pid} exited ({how}), starting again in {self.states[name].pause:g} s")
        self._save()

    def _stop(self, name: str) -> None:
        state, handle = self.states[name], self.pidfds.pop(name, None)
        if handle is None:
            return
        timeout = self.wanted[name].stop_timeout if name in self.wanted else 5.0
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        try:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            if not poll.poll(timeout * 1000):
                say(f"{name}: pid {state.pid} is still running {timeout:g} s after SIGTERM: SIGKILL")
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                poll.poll(5000)
        except ProcessLookupError:
            pass
        os.close(handle)
        say(f"{name}: stopped ({reap(state.pid)})")
        self.states[name] = State(starts=state.starts)
        self._save()

    def _adopt(self) -> None:
        for name, known in read_state(self.folder).items():
            pid = int(known["pid"])
            if not pid or start_time(pid) != known["start_time"]:
                continue
            try:
                self.pidfds[name] = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            self.states[name] = State(pid, known["digest"], time.monotonic(), starts=int(known["starts"]))
            say(f"{name}: taken over, pid {pid}")
        self._save()

    def _save(self) -> None:
        rows: dict[str, Any] = {}
        for name, state in self.states.items():
            rows[name] = {
                "pid": state.pid,
                "start_time": start_time(state.pid) if state.pid else "",
                "digest": state.digest,
                "starts": state.starts,
                "last_exit": self.last_exit.get(name, ""),
            }
        files.replace(os.path.join(self.folder, "state.json"), json.dumps(rows, indent=1), 0o644)


def spawn(program: Program) -> int:
    """Start it in its own session, with its output appended to its log. Raises OSError if it cannot be executed."""
    log = os.open(program.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.posix_spawn(
            program.argv[0],
            program.argv,
            program.env,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )
    finally:
        os.close(log)
        os.close(null)


def reap(pid: int) -> str:
    """How a process exited, in words; "unknown" for one that was taken over and has another parent."""
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return "unknown"
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit status {os.WEXITSTATUS(status)}"


def read_programs(folder: str) -> dict[str, Program]:
    """The programs of spec.json in their order, without those that a file stopped.NAME keeps from running."""
    with open(os.path.join(folder, "spec.json"), encoding="utf-8") as file:
        spec = json.load(file)
    programs = [Program.from_json(entry) for entry in spec["programs"]]
    return {one.name: one for one in programs if not os.path.exists(os.path.join(folder, f"stopped.{one.name}"))}


def read_snapshots(folder: str) -> str:
    """The folder of containerd's snapshots in spec.json, "" if layers of images are none of this unit's business."""
    with open(os.path.join(folder, "spec.json"), encoding="utf-8") as file:
        return str(json.load(file).get("snapshots", ""))


def enter(folder: str) -> None:
    """Join the cgroups and namespaces of spec.json; every program started from here inherits them."""
    with open(os.path.join(folder, "spec.json"), encoding="utf-8") as file:
        spec = json.load(file)
    for path in spec["cgroups"]:
        with open(f"{path}/cgroup.procs", "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    for kind, path in spec["namespaces"]:
        nsinit.setns(path, kind)
    os.chdir("/")


def say(text: str) -> None:
    """One line of the supervisor's own log."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(f"{stamp} {text}", file=sys.stderr, flush=True)


def _locked(handle: int) -> bool:
    """Whether we have the lock now. Who looks for a supervisor holds it for a moment, so one failure says nothing."""
    for attempt in range(_ATTEMPTS):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt:
                time.sleep(0.01)
        else:
            return True
    return False


def main() -> int:
    """Exit status 3 when another supervisor of this directory is running."""
    folder = sys.argv[1]
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _locked(lock):
        say("another supervisor holds the lock: nothing to do")
        return 3
    os.truncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    enter(folder)
    Supervisor(folder).run()
    return 0
