"""Write the files of a volume so that a reader sees either all of the old or all of the new.

The layout is that of upstream's pkg/volume/util/atomic_writer.go, which applications rely on:
  NAME -> ..data/NAME        what the user sees, made once
  ..data -> ..2026_01_02_03_04_05.123/    replaced by one rename(2)
Paths are checked by volumes/plan/payload.py; this module follows no link that the agent did not make itself.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Mapping

from agent.volumes.model.volumes import FileProjection
from nodelib import file_trees

_DATA = "..data"
_NEW_DATA = "..data_tmp"


def write(target: str, files: Mapping[str, FileProjection], set_permissions: Callable[[], None] | None = None) -> bool:
    """Make the directory `target` hold exactly `files`; False when it did already. Raises OSError."""
    old = _current(target)
    if old and _same(os.path.join(target, old), files):
        _finish(target, files, old)  # an earlier write may have failed, or been killed, in the middle of it
        return False
    fresh = tempfile.mkdtemp(prefix=time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime()), dir=target)
    try:
        os.chmod(fresh, 0o755)
        for path, file in files.items():
            _write_file(fresh, path, file)
        if set_permissions is not None:
            set_permissions()
        _switch(target, os.path.basename(fresh))
    except OSError:
        with contextlib.suppress(OSError):
            file_trees.remove(fresh)
        raise
    _finish(target, files, os.path.basename(fresh))
    return True


def _current(target: str) -> str:
    try:
        name = os.readlink(os.path.join(target, _DATA))
    except FileNotFoundError:
        return ""
    except OSError:
        return ""
    return name if os.path.isdir(os.path.join(target, name)) else ""


def _same(directory: str, files: Mapping[str, FileProjection]) -> bool:
    if file_trees.files_below(directory) != set(files):
        return False
    return all(_holds(os.path.join(directory, path), file.data) for path, file in files.items())


def _holds(path: str, data: bytes) -> bool:
    # Never wait for, or read all of, what somebody has put in the file's place.
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        return stat.S_ISREG(found.st_mode) and found.st_size == len(data) and file.read(len(data)) == data


def _write_file(directory: str, path: str, file: FileProjection) -> None:
    full = os.path.join(directory, path)
    parent = os.path.dirname(full)
    if parent != directory:
        _make_parents(directory, os.path.dirname(path))
    handle = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with memoryview(file.data) as data:
            done = 0
            while done < len(data):
                done += os.write(handle, data[done:])
        if file.uid is not None:
            os.fchown(handle, file.uid, -1)
        os.fchmod(handle, stat.S_IMODE(file.mode))
    finally:
        os.close(handle)


def _make_parents(directory: str, relative: str) -> None:
    at = directory
    for part in relative.split("/"):
        at = os.path.join(at, part)
        if not os.path.isdir(at):
            os.mkdir(at)
            os.chmod(at, 0o755)


def _switch(target: str, fresh: str) -> None:
    new = os.path.join(target, _NEW_DATA)
    try:
        os.symlink(fresh, new)
    except FileExistsError:  # left by an agent that was killed between the two calls
        os.unlink(new)
        os.symlink(fresh, new)
    try:
        os.rename(new, os.path.join(target, _DATA))
    except OSError:
        os.unlink(new)
        raise


def _finish(target: str, files: Mapping[str, FileProjection], current: str) -> None:
    """Make the names in the volume those of `files`, and remove all data but `current`."""
    _link_names(target, files)
    _unlink_removed(target, files)
    _remove_old_data(target, current)


def _link_names(target: str, files: Mapping[str, FileProjection]) -> None:
    for name in {path.split("/", 1)[0] for path in files}:
        visible = os.path.join(target, name)
        if not os.path.lexists(visible):
            os.symlink(os.path.join(_DATA, name), visible)


def _unlink_removed(target: str, files: Mapping[str, FileProjection]) -> None:
    """Remove our links to files that are gone; directories for nested mounts are not links and stay."""
    kept = {path.split("/", 1)[0] for path in files}
    for entry in os.scandir(target):
        if entry.name in kept or entry.name == _DATA or not entry.is_symlink():
            continue
        if os.readlink(entry.path) == os.path.join(_DATA, entry.name):
            os.unlink(entry.path)


def _remove_old_data(target: str, current: str) -> None:
    """Remove older data directories, including those that a killed agent left behind."""
    for entry in os.scandir(target):
        if entry.name.startswith("..2") and entry.name != current and entry.is_dir(follow_symlinks=False):
            file_trees.remove(entry.path)
