"""Reads a supervisor's state file and the start times of processes. Standard library only."""

from __future__ import annotations

import json
import os
from typing import Any


def start_time(pid: int) -> str:
    """Field 22 of /proc/PID/stat (clock ticks since boot), "" if there is no such process or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def read_state(folder: str) -> dict[str, dict[str, Any]]:
    """state.json; empty if there is none yet or it cannot be read."""
    try:
        with open(os.path.join(folder, "state.json"), encoding="utf-8") as file:
            rows: dict[str, dict[str, Any]] = json.load(file)
    except (OSError, ValueError):
        return {}
    return rows
