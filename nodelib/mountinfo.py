"""Reads /proc/PID/mountinfo (proc_pid_mountinfo(5)). Standard library only.

Names in it are those of others: a pod chooses that of a sub path, a user of the machine where FUSE mounts. The kernel
escapes blanks, tabs, line feeds and backslashes, and nothing else: a line ends at a line feed, and not where Python's
text files and str.splitlines() see one as well (\\r, \\v, \\f, \\x1c, \\x85, U+2028).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

_OCTAL = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """One mount: what of a file system (`root`) is seen at `path`; `options` are those of the file system.

    `device`: "major:minor" of the file system (st_dev).

    Bytes that are no UTF-8 are surrogates, as os.fsdecode() makes them.
    """

    path: str
    root: str
    fs_type: str
    options: str
    device: str = ""


def of_process(process: int | str = "self", containing: str = "") -> list[Mount]:
    """Every mount that the process sees, in the order in which they were made. Raises OSError.

    `containing`: only lines with this text, which the kernel would not escape, need to be looked at.
    """
    with open(f"/proc/{process}/mountinfo", "rb") as file:
        return list(parsed(file.read(), containing))


def parsed(text: bytes, containing: str = "") -> Iterator[Mount]:
    """The mounts of a mount table; what is no line of one is left out."""
    wanted = os.fsencode(containing)
    for line in text.split(b"\n"):
        if wanted not in line:
            continue
        left, _, right = line.partition(b" - ")
        fields, last = left.split(b" "), right.split(b" ")
        if len(fields) >= 6 and len(last) >= 3:
            yield Mount(*(_text(one) for one in (fields[4], fields[3], last[0], last[-1], fields[2])))


def _text(escaped: bytes) -> str:
    return os.fsdecode(_OCTAL.sub(lambda found: bytes((int(found[1], 8) & 255,)), escaped))
