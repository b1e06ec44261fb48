"""A small file replaced in one step, whole on disk when the call returns."""

from __future__ import annotations

import os


def replace(path: str, text: str) -> None:
    """Old or new after a power failure, never half; 0600. The folder must be there. Raises OSError."""
    folder, name = os.path.split(path)
    # A dot and a name of its own: upstream's kubelet takes its temporary files for none of its checkpoints.
    staged = os.path.join(folder, f".{name}.new")
    handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(staged, path)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
