"""Writes files all or nothing: a reader sees the old text or the new."""

from __future__ import annotations

import os

from nodelib import files


def write(path: str, text: str | bytes, mode: int = 0o600) -> None:
    """Replace a file atomically; missing folders are made."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    files.replace(path, text, mode)


def write_if_changed(path: str, text: str | bytes, mode: int = 0o600) -> bool:
    """write() unless the file already holds that text. True if it was written."""
    if files.holds(path, text):
        return False
    write(path, text, mode)
    return True
