"""Files that the runtime reads: the network's .conflist and the plugin itself. Decides nothing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from nodelib import files
from nodelib.errors import Permanent


def write_atomically(path: Path, content: bytes, mode: int) -> bool:
    """Replace the file atomically. False: it had that content and mode already. Raises Permanent."""
    try:
        with suppress(FileNotFoundError):
            if path.read_bytes() == content and path.stat().st_mode & 0o7777 == mode:
                return False
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(str(path), content, mode)
    except OSError as error:
        raise Permanent(
            error.strerror or str(error),
            obj=str(path),
            step="write file",
            action="Check the folder's owner and free space.",
        ) from error
    return True


def remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
