"""Makes or repairs the namespaces of one node and starts its process 1. A program of its own, run by `up` with JSON on
its standard input.

Only a whole process can enter a mount, PID or UTS namespace, so no thread of the command line can do this. It uses
nothing but the standard library and is started with -S: `up` runs it once for each node, and 30 ms matter there.

The network namespace is kept as a bind mount in `dir` and so outlives every process: links and the control plane stay
when a node goes down. All other namespaces of a machine live as long as its process 1 (init.py); their files in `dir`
are for nsenter(1), and are made anew with it. `dir` must be a private mount, because a mount namespace cannot be bound
below a shared one. A namespace that a living process still has can be bound again.
Input: {"dir", "space", "sysctls": {path: value}, "machine": null or {"lock": file, "cgroups": [folder], "hostname",
"root": see machine_root.py, "argv": of process 1, "env"}}. Without a machine there is only a network namespace.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
import time
from typing import Any, NoReturn

from controlplane.machine.edge import machine_root, process_one
from controlplane.machine.edge.syscalls import (
    MS_BIND,
    MS_PRIVATE,
    check,
    copy_of_mount,
    libc,
    mount,
    mount_points,
    unmount,
)

CLONE = {
    "net": 0x40000000,
    "pid": 0x20000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
    "mnt": 0x00020000,
}
_OF_MACHINE = ("uts", "ipc", "cgroup")  # and "mnt"; a PID namespace begins with its process 1


def setns(path: str, kind: str) -> None:
    """Enter the namespace bound to `path`. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        check(libc.setns(handle, CLONE[kind]), f"enter {path}")
    finally:
        os.close(handle)


def ensure_private_dir(path: str) -> None:
    """Make `path` a private mount of its own."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    if path not in mount_points():
        mount(path, path, flags=MS_BIND)
    mount("", path, flags=MS_PRIVATE)


class Space:
    """The namespaces of one node, as files in a folder."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.machine: dict[str, Any] | None = spec["machine"]
        self.lock = -1  # of the file that process 1 keeps locked as long as it lives

    def file(self, kind: str) -> str:
        return f"{self.spec['dir']}/{self.spec['space']}.{kind}"

    def bind(self, process: int, kind: str) -> None:
        """Bind a namespace of a process to its file. Raises OSError."""
        with open(self.file(kind), "a", encoding="ascii"):
            pass
        mount(f"/proc/{process}/ns/{kind}", self.file(kind), flags=MS_BIND)

    def ensure(self) -> None:
        """Make what is missing. Raises OSError."""
        alive = self._process_one() if self.machine else 0
        points = mount_points()
        if alive:
            for kind in CLONE:
                if self.file(kind) not in points:
                    self.bind(alive, kind)
        elif self.machine:
            for kind in CLONE:  # of a process 1 that has ended
                if kind != "net" and self.file(kind) in points:
                    unmount(self.file(kind))
        if not alive and (self.machine or self.file("net") not in points):
            self.make(own_net=self.file("net") not in points)
        setns(self.file("net"), "net")
        for name, value in self.spec["sysctls"].items():
            if os.path.exists(f"/proc/sys/{name}"):
                with open(f"/proc/sys/{name}", "w", encoding="ascii") as file:
                    file.write(value)
        if alive and self.machine:
            self._add_mounts(alive, self.machine["root"]["mounts"])

    def _add_mounts(self, alive: int, wanted: list[dict[str, Any]]) -> None:
        """Mount in the living machine what it has not: another `up` may need other folders, such as a newer project."""
        points = mount_points(alive)
        missing = [entry for entry in wanted if entry["type"] == "bind" and entry["target"] not in points]
        trees = [copy_of_mount(entry["source"]) for entry in missing]
        if trees:
            setns(self.file("mnt"), "mnt")  # and into its root
            for entry, tree in zip(missing, trees, strict=True):
                machine_root.add(entry, tree)

    def _process_one(self) -> int:
        """The pid of the machine's process 1, 0 if there is none; then this process has its lock."""
        assert self.machine
        self.lock = os.open(self.machine["lock"], os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if found := process_one.alive(self.machine["lock"]):
                    return found
                time.sleep(0.01)  # somebody looks whether it lives, and has the lock for a moment
            else:
                return 0

    def make(self, *, own_net: bool) -> None:
        """Make new namespaces, bind them to their files and start process 1 in them; this process stays outside.

        A mount namespace can only be bound inside one with a smaller number (mnt_ns_loop() in fs/namespace.c prevents
        loops). Since Linux 6.18 each CPU takes numbers from a batch of its own (kernel/nstree.c), so a new namespace
        may have the smaller number. It does not on the CPU where our own namespace was made, so every CPU is tried.
        """
        cpus = sorted(os.sched_getaffinity(0))
        for cpu in cpus:
            if self._make_on(cpu, own_net):
                return
        raise OSError(errno.EINVAL, f"no CPU of {cpus} makes a mount namespace that can be bound here")

    def _make_on(self, cpu: int, own_net: bool) -> bool:
        """False if its mount namespace cannot be bound."""
        said, go = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.close(said[0])
            os.close(go[1])
            self._be_parent_of_one(cpu, own_net, said[1], go[0])
        os.close(said[1])
        os.close(go[0])
        try:
            expect(said[0], b"namespaces\n")
            if self.machine:
                try:
                    self.bind(child, "mnt")
                except OSError as error:
                    if error.errno == errno.EINVAL:
                        return False
                    raise
            for kind in (*(_OF_MACHINE if self.machine else ()), *(("net",) if own_net else ())):
                self.bind(child, kind)
            if self.machine:
                os.write(go[1], b"1")
                one = int(expect(said[0], b"process "))
                expect(said[0], b"ready\n")
                self.bind(one, "pid")
            return True
        finally:
            for handle in (said[0], go[1]):
                os.close(handle)
            os.waitpid(child, 0)

    def _be_parent_of_one(self, cpu: int, own_net: bool, said: int, go: int) -> NoReturn:
        """Make the namespaces, wait until they are bound, start process 1 in them, and leave.

        When the other side gives up, it closes its pipe, and this process and what it started end.
        """
        try:
            everywhere = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {cpu})
            for folder in self.machine["cgroups"] if self.machine else ():
                with open(f"{folder}/cgroup.procs", "w", encoding="ascii") as file:
                    file.write("0")
            if not own_net:
                setns(self.file("net"), "net")
            flags = CLONE["net"] if own_net else 0
            for kind in ("pid", "mnt", *_OF_MACHINE) if self.machine else ():
                flags |= CLONE[kind]
            check(libc.unshare(flags), "make namespaces")
            os.write(said, b"namespaces\n")
            if os.read(go, 1) and self.machine:
                os.sched_setaffinity(0, everywhere)
                self._start_one(said)
        except OSError as error:
            os.write(said, f"error {error.errno} {error}".encode())
            os._exit(1)
        os._exit(0)

    def _start_one(self, said: int) -> None:
        assert self.machine
        gate = os.pipe()
        one = os.fork()
        if one == 0:
            os.close(gate[1])
            os.read(gate[0], 1)
            self._be_one(said)
        # The pid is written before process 1 does anything: whoever finds the lock taken knows whom to kill.
        process_one.write_pid(self.machine["lock"], one)
        os.write(said, f"process {one}\n".encode())
        os.close(gate[1])

    def _be_one(self, said: int) -> NoReturn:
        """Furnish the machine and become its init. The init closes `said` and keeps the lock."""
        try:
            assert self.machine
            name = self.machine["hostname"].encode()
            check(libc.sethostname(name, len(name)), "sethostname")
            machine_root.enter(self.machine["root"])
            os.set_inheritable(said, True)
            os.set_inheritable(self.lock, True)
            argv = [*self.machine["argv"], str(said), str(self.lock)]
            os.execve(argv[0], argv, self.machine["env"])
        except OSError as error:
            os.write(said, f"error {error.errno} {error}".encode())
        os._exit(1)


def expect(pipe: int, start: bytes) -> bytes:
    """The rest of a line that begins with `start`. Raises OSError with what the other side says instead."""
    line = b""
    while not line.endswith(b"\n") and (piece := os.read(pipe, 1)):
        line += piece
    if line.startswith(start):
        return line[len(start) :]
    word, _, rest = line.decode(errors="replace").partition(" ")
    number, _, text = rest.partition(" ")
    if word == "error":
        raise OSError(int(number), text)
    raise OSError(errno.ECHILD, f"the process ended before it said {start.decode().strip()!r}")


def main() -> int:
    """Exit status 1 and one line on stderr when the kernel refuses."""
    spec = json.load(sys.stdin)
    try:
        ensure_private_dir(spec["dir"])
        Space(spec).ensure()
    except OSError as error:
        print(f"{spec['space']}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
