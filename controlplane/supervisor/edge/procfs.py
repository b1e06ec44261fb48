"""Reads a supervisor's state file and the start times of processes. Standard library only."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from nodelib.files import no_link

_MOST = 4 << 20  # bytes
_LONGEST_NAME, _LONGEST_TEXT = 100, 1000  # characters


def start_time(pid: int) -> str:
    """Field 22 of /proc/PID/stat (clock ticks since boot), "" if there is no such process or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def age(pid: int) -> float:
    """For how many seconds a process has been running, 0 if it is not."""
    ticks = start_time(pid)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK") if ticks else 0.0


def read_state(folder: str) -> dict[str, dict[str, Any]]:
    """state.json; empty if there is none yet or it cannot be read."""
    try:
        rows = read_json(os.path.join(folder, "state.json"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: _row(row) for name, row in rows.items() if isinstance(row, dict) and len(name) <= _LONGEST_NAME}


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """A program's row with what its readers expect, whoever wrote the file."""
    numbers = {key: row.get(key) for key in ("pid", "starts")}
    texts = {key: row.get(key) for key in ("start_time", "last_exit")}
    return {
        **row,
        **{key: one if isinstance(one, int) and 0 <= one < 1 << 31 else 0 for key, one in numbers.items()},
        **{key: one[:_LONGEST_TEXT] if isinstance(one, str) else "" for key, one in texts.items()},
    }


def read_json(path: str) -> dict[str, Any]:
    """An object from a file of a supervisor's folder. Raises OSError or ValueError.

    The folder of a node can be written by pods that are root there, so neither a link nor a pipe nor a huge file in its
    place does any harm.
    """
    with open(path, "rb", opener=no_link) as file:
        found = json.loads(file.read(_MOST))
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no object")
    return found
