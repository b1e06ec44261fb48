"""A wall clock of one process that steps: libfaketime reads the offset from a file that the test writes.

Only the daemon's own view changes; the machine's clock belongs to everyone. Monotonic clocks stay as they are, as with
a real step (https://github.com/wolfcw/libfaketime).
"""

from __future__ import annotations

import glob
from pathlib import Path

OFFSET_FILE = "/run/nodewright-test-clock"  # as the node sees it


def library() -> str:
    """Where libfaketime is, "" if it is not installed."""
    return next(iter(sorted(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"))), "")


def environment() -> dict[str, str]:
    """For the daemon."""
    return {
        "LD_PRELOAD": library(),
        "FAKETIME_TIMESTAMP_FILE": OFFSET_FILE,
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def step(pid: int, seconds: int) -> None:
    """Set the clock of the process `pid` this far from the machine's."""
    Path(f"/proc/{pid}/root{OFFSET_FILE}").write_text(f"{seconds:+d}")
