"""The process 1 of a node, seen from the machine: whether it lives, and which pid out here is which in there.

Standard library only, as the supervisor uses it too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal

_PID_FROM_PIDNS = 0x8004B706  # NS_GET_PID_FROM_PIDNS (linux/nsfs.h)
_LARGEST_PID = 1 << 22  # PID_MAX_LIMIT (linux/threads.h)
_UNKNOWN = (errno.ENOTTY, errno.EINVAL)  # kernels before 6.12


def is_machine(lock: str) -> bool:
    """Whether the unit with this lock file has a process 1 of its own."""
    return os.path.exists(lock)


def _pid_file(lock: str) -> str:
    """Not the lock itself: process 1 has that open, so whoever is root in the node could write any pid to it."""
    return f"{lock}.pid"


def write_pid(lock: str, pid: int) -> None:
    """Write down who process 1 is going to be. Raises OSError."""
    with open(_pid_file(lock), "w", encoding="ascii") as file:
        file.write(str(pid))


def boot_time(lock: str) -> float:
    """When the last process 1 was started, in seconds since the epoch; 0 if there never was one."""
    try:
        return os.stat(_pid_file(lock)).st_mtime
    except FileNotFoundError:
        return 0


def alive(lock: str) -> int:
    """The pid of the process that holds the lock, 0 if there is none, or none yet."""
    try:
        handle = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        with contextlib.suppress(FileNotFoundError), open(_pid_file(lock), encoding="ascii") as file:
            return int(file.read() or "0")
    finally:
        os.close(handle)
    return 0


def outer_pid(one: int, inner: int) -> int:
    """The pid here of the process that has the pid `inner` in the PID namespace of `one`; 0 if there is none.

    A pid that a node reports is only ever one of the node's own processes: what it says cannot name another.
    """
    if not 0 < inner <= _LARGEST_PID:
        return 0
    try:
        space = os.open(f"/proc/{one}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    try:
        return fcntl.ioctl(space, _PID_FROM_PIDNS, inner)
    except ProcessLookupError:
        return 0
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
        return _searched(os.fstat(space).st_ino, inner)
    finally:
        os.close(space)


def _searched(space: int, inner: int) -> int:
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}/ns/pid").st_ino != space:
                continue
            with open(f"/proc/{name}/status", encoding="ascii", errors="replace") as file:
                pids = next(line for line in file if line.startswith("NSpid:")).split()
            if int(pids[-1]) == inner:
                return int(name)
    return 0


def kill(lock: str) -> int:
    """End a node: SIGKILL its process 1 and wait until the kernel has ended all others. Returns how many nodes died."""
    one = alive(lock)
    if not one:
        return 0
    try:
        handle = os.pidfd_open(one)
    except ProcessLookupError:
        return 0
    try:
        if alive(lock) != one:  # it ended in the meantime, and its pid may be another's
            return 0
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(20000)
    except ProcessLookupError:
        return 0
    finally:
        os.close(handle)
    return 1
