"""Parsers of the number files of /proc and cgroups.

All raise OSError for a file that cannot be read, unless they say that it may be missing.
"""

from __future__ import annotations

import os
from itertools import islice

from agent.resources.model import UNLIMITED_V1
from agent.stats.model import Pressure, Stall


def text(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def number(path: str, *, missing: int | None = None) -> int:
    """A file with one number; "max" is 0. `missing` is the value of a file that may not exist."""
    try:
        found = text(path).strip()
    except FileNotFoundError:
        if missing is None:
            raise
        return missing
    return 0 if found == "max" else int(found)


def bounded(limit: int) -> int:
    """A limit of cgroup v1 in bytes; 0 for none."""
    return limit if limit < UNLIMITED_V1 else 0


def pairs(path: str) -> dict[str, int]:
    """A file with a name and a number on each line."""
    words = text(path).split()
    return dict(zip(islice(words, 0, None, 2), map(int, islice(words, 1, None, 2)), strict=False))


def pairs_if_there(path: str) -> dict[str, int]:
    try:
        return pairs(path)
    except FileNotFoundError:
        return {}


def folders(path: str) -> list[str]:
    """Sorted names of the folders in `path`, none when it does not exist."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def device_name(major: int, minor: int) -> str:
    """/dev/NAME of a block device, "" when it is not one."""
    try:
        return "/dev/" + os.path.basename(os.readlink(f"/sys/dev/block/{major}:{minor}"))
    except OSError:
        return ""


def pressure(path: str) -> Pressure:
    """A file of stall information (https://docs.kernel.org/accounting/psi.html).

    All zero when there is no such file or the kernel does not support it (then it answers EOPNOTSUPP).
    """
    try:
        lines = text(path).splitlines()
    except OSError:
        return Pressure()
    read = {name: dict(word.split("=") for word in rest) for name, *rest in (line.split() for line in lines)}
    return Pressure(_stall(read.get("some", {})), _stall(read.get("full", {})))


def _stall(fields: dict[str, str]) -> Stall:
    shares = (float(fields.get(name, 0)) for name in ("avg10", "avg60", "avg300"))
    return Stall(int(fields.get("total", 0)), *shares)
