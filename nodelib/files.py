"""Files that a reader finds as they were or as they are, never half written. Standard library only."""

from __future__ import annotations

import contextlib
import os


def replace(path: str, content: str | bytes, mode: int = 0o600, *, durable: bool = False) -> None:
    """Put `content` in the place of the file. The folder must be there. Raises OSError, and leaves no draft then.

    `durable`: whole on disk when the call returns, and old or new after a power failure.
    """
    folder, name = os.path.split(path)
    # A dot in front and another ending: readers of a whole folder (containerd, upstream's kubelet) take it for nothing.
    draft = os.path.join(folder, f".{name}.new")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with open(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(handle)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise
    if durable:
        _sync_folder(folder or ".")


def holds(path: str, content: str | bytes) -> bool:
    """Whether the file has just this content. Raises OSError for what cannot be read, but for a missing file."""
    try:
        with open(path, "rb") as file:
            return file.read() == (content.encode() if isinstance(content, str) else content)
    except FileNotFoundError:
        return False


def text_of(path: str) -> str:
    """What is in it, "" for a file that is not there or cannot be read: where that is as good as empty."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _sync_folder(folder: str) -> None:
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
