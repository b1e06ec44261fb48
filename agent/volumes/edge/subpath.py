"""Bind mount a path inside a volume for one container, so that no link in the volume can lead out of it.

As upstream's pkg/volume/util/subpath: the path is opened once, confined by the kernel
(openat2 RESOLVE_BENEATH), and the mount is made from the open file, which no link can redirect afterwards.
"""

from __future__ import annotations

import os
import stat

from agent.volumes.edge.setup import make_directories
from nodelib import mounts
from nodelib.errors import Permanent

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_ATTEMPTS = 3


def bind(volume: str, path: str, target: str, *, keeps_peers: bool = False) -> str:
    """Mount `path` of the volume directory (or file) at `target` and return it; missing directories are made.

    What is mounted below `path` is shown too, now and later, and nobody who unmounts it at `target` unmounts it at its
    own place. Upstream leaves its sub paths in the peer groups of the volume; `keeps_peers` does so here, for mounts
    with Bidirectional propagation, which ask for it.

    Raises Permanent without details of the host's files, MountError, OSError. Idempotent for the same file.
    """
    base = os.open(volume, os.O_PATH | os.O_CLOEXEC)
    try:
        opened = _open(base, volume, path)
    finally:
        os.close(base)
    try:
        found = os.fstat(opened)
        if not _is_bound(target, found):
            _make_target(target, stat.S_ISDIR(found.st_mode))
            mounts.mount(f"/proc/self/fd/{opened}", target, "", mounts.MS_BIND | mounts.MS_REC)
        if not keeps_peers:  # nor what an older agent bound, or one that was killed after the bind
            _leave_peers(target)
    finally:
        os.close(opened)
    return target


def unbind_all(sub_paths: str) -> None:
    """Unmount what bind() mounted below a pod's folder of sub paths (VOLUME/CONTAINER/INDEX). Raises MountError.

    Detached at once, whoever uses it: the files are elsewhere, so nothing is lost.
    """
    prefix = sub_paths.rstrip("/") + "/"
    for found in reversed(mounts.mounts_below(sub_paths)):
        if found.path.startswith(prefix) and found.path.removeprefix(prefix).count("/") == 2:
            mounts.detach(found.path)


def _leave_peers(target: str) -> None:
    """Receive what is mounted and unmounted in the volume, send nothing back, and hand it on to containers."""
    try:
        mounts.set_propagation(target, mounts.MS_SLAVE)
        mounts.set_propagation(target, mounts.MS_SHARED)
    except mounts.MountError:
        mounts.detach(target)
        raise


def _open(base: int, volume: str, path: str) -> int:
    for _ in range(_ATTEMPTS):
        try:
            return mounts.open_beneath(base, path, os.O_PATH)
        except FileNotFoundError:
            _make_directories(base, volume, path)
        except OSError as error:
            raise _refused(path) from error
    raise _refused(path)


def _make_directories(base: int, volume: str, path: str) -> None:
    """Make the missing directories of `path` with the volume's mode, one at a time below an open directory."""
    mode = stat.S_IMODE(os.fstat(base).st_mode)
    at = os.open(f"/proc/self/fd/{base}", _DIRECTORY | os.O_CLOEXEC)
    walked = ""
    try:
        for part in [part for part in path.split("/") if part not in ("", ".")]:
            walked = f"{walked}/{part}" if walked else part
            try:
                following = mounts.open_beneath(base, walked, os.O_PATH)
                os.close(following)
                following = mounts.open_beneath(base, walked, _DIRECTORY)
            except FileNotFoundError:
                os.mkdir(part, mode, dir_fd=at)
                following = os.open(part, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
                os.fchmod(following, mode)
            os.close(at)
            at = following
    except FileExistsError:
        return  # a dangling link, or another container was faster: the caller opens it again
    except OSError as error:
        raise _refused(path) from error
    finally:
        os.close(at)


def _is_bound(target: str, wanted: os.stat_result) -> bool:
    try:
        there = os.lstat(target)
    except FileNotFoundError:
        return False
    if (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino):
        return True  # the table of mounts, which may be long, need not be read for each
    if mounts.mount_at(target) is not None:
        mounts.detach(target)
    return False


def _make_target(target: str, directory: bool) -> None:
    make_directories(os.path.dirname(target))
    try:
        is_directory = stat.S_ISDIR(os.lstat(target).st_mode)
    except FileNotFoundError:
        pass
    else:
        if is_directory == directory:
            return
        (os.rmdir if is_directory else os.unlink)(target)
    if directory:
        os.mkdir(target, 0o750)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o640))


def _refused(path: str) -> Permanent:
    # The reason could tell a pod about files of the host: it stays in the chained exception.
    return Permanent(
        f"failed to prepare subPath {path!r}",
        step="subPath",
        action="Make sure that it is inside the volume, and that links in it do not lead out of it.",
    )
