"""Directory trees that a pod may leave behind, and processes that rename in them as fast as they can."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# renameat2(2) with RENAME_EXCHANGE: CVE-2017-1002101, CVE-2021-25741.
_SWAPPER = """
import ctypes, os, sys
one, other = (os.fsencode(path) for path in sys.argv[1:])
libc = ctypes.CDLL(None)
while libc.renameat2(-100, one, -100, other, 2) == 0:
    pass
"""


def deep(top: str | Path, depth: int, name: str = "d") -> None:
    """`depth` directories in each other below `top`, with a file in the last one."""
    at = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        following = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = following
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


def wide(top: str, count: int) -> None:
    """`count` files, and a tenth as many directories, in one directory."""
    at = os.open(top, os.O_RDONLY)
    for number in range(count):
        os.mknod(f"file-{number}", 0o600 | stat.S_IFREG, dir_fd=at)
    for number in range(count // 10):
        os.mkdir(f"folder-{number}", dir_fd=at)
    os.close(at)


def all_kinds(top: str) -> None:
    """FIFOs, sockets, devices, links, hard links, names that are no text, and closed modes."""
    at = Path(top)
    os.mkfifo(at / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{os.open(top, os.O_PATH)}/s")
    os.mknod(at / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    (at / "link").symlink_to("/")
    (at / "dangling").symlink_to("nowhere")
    (at / "loop").symlink_to("loop")
    (at / "closed").mkdir(mode=0)
    (at / "closed" / "\n\udcff %s {} \x1b[31m").touch()
    os.link(at / "zero", at / "closed" / "linked")
    os.mkfifo(at / "closed" / "fifo")


@contextmanager
def running(script: str, *arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """A Python script in a process of its own for the block."""
    line = [sys.executable, "-I", "-S", "-c", script, *map(str, arguments)]
    process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Two names are exchanged all the time; the process ends when one of them is gone."""
    with running(_SWAPPER, one, other) as process:
        yield process
