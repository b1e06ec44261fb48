"""The name by which tools find a daemon: pidof, pgrep, ps -C, killall and what is built on them.

Upstream's daemons are programs called kubelet and kube-proxy; ours are run by Python. Some tools look at the name of
the process (/proc/PID/comm: pgrep -x, ps -C), others at the first word of its command line (sysvinit's pidof), so both
are changed. A symbolic link to Python with that name would do it, too, but not where Python is not ours.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

_ARGUMENTS_FROM, _ARGUMENTS_TO = 45, 46  # fields of /proc/PID/stat behind the name, counted from 0 (proc_pid_stat(5))


def answer_to(name: str, arguments: Sequence[str]) -> None:
    """Call this process `name`, as if that were the program that was started with these arguments.

    Nothing is done in a process that was started with others: it is somebody else's, such as a test's. Where the kernel
    does not allow it everything works, and the process is called python.
    """
    if sys.argv[len(sys.argv) - len(arguments) :] != list(arguments):
        return
    with contextlib.suppress(OSError, ValueError):
        _name_of_process(name)
        _command_line([name, *arguments])


def _name_of_process(name: str) -> None:
    with open("/proc/self/comm", "wb") as file:
        file.write(os.fsencode(name))


def _command_line(words: Sequence[str]) -> None:
    """Write the words over those that the process was started with, which Python has read by now.

    The rest becomes zeros, as setproctitle(3) leaves it: only CAP_SYS_RESOURCE may tell the kernel of a shorter line.
    """
    with open("/proc/self/cmdline", "rb") as file:
        old = file.read()
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    first, end = int(fields[_ARGUMENTS_FROM]), int(fields[_ARGUMENTS_TO])
    new = b"".join(os.fsencode(word) + b"\0" for word in words)
    if len(new) > len(old) or end - first != len(old):
        return
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(first)
        memory.write(new.ljust(len(old), b"\0"))
