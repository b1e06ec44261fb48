"""Logs of running programs, kept small. Decides nothing."""

from __future__ import annotations

import os

_CHUNK = 1 << 20


def keep_small(path: str, most: int) -> bool:
    """If the log is longer than `most` bytes, leave its last `most` bytes in PATH.1 and empty it; whether that was so.

    Its programs go on writing to the same open file (logrotate's copytruncate): they append, so they go on at its new
    beginning. A line that is written between the copy and the end of it is lost. Raises OSError.
    """
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        size = os.fstat(handle).st_size
        if size <= most:
            return False
        copy = os.open(f"{path}.1.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        try:
            at = size - most
            while data := os.pread(handle, _CHUNK, at):
                at += os.write(copy, data)
        finally:
            os.close(copy)
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)
    os.replace(f"{path}.1.new", f"{path}.1")
    return True
