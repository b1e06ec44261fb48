"""A file in the home of a user that other programs write too: locked as client-go does, replaced as a whole."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from nodelib.errors import Temporary

_MOST = 16 << 20  # bytes
_PAUSE = 0.05  # seconds
_CLOCKS_DIFFER = 60.0  # seconds; by which a wall clock may have been corrected since


def home() -> str:
    """The home directory of whoever runs this: $HOME, which sudo sets to root's on Debian."""
    return os.path.expanduser("~")


def is_file(path: str) -> bool:
    return os.path.exists(path) and not os.path.isdir(path)


@contextlib.contextmanager
def locked(path: str, *, wait: float = 5.0) -> Iterator[None]:
    """Hold PATH.lock, which exists as long as somebody changes the file (lockFile in k8s.io/client-go's clientcmd).

    One that a crash of the machine left is removed. Raises Temporary when it does not go away in `wait` seconds, and
    OSError.
    """
    lock, deadline = f"{path}.lock", time.monotonic() + wait
    _make_folders(os.path.dirname(os.path.abspath(path)))
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0))
            break
        except FileExistsError as error:
            if time.monotonic() > deadline and _of_an_earlier_boot(lock):
                _remove(lock)
            elif time.monotonic() > deadline:
                raise Temporary(
                    f"another program holds its lock {lock}",
                    obj=path,
                    step="change the kubeconfig",
                    action="If no kubectl, kind or the like is changing the file, run "
                    f"`rm -f {shlex.quote(lock)}`; then try again.",
                ) from error
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        _remove(lock)


def _remove(lock: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(lock)


def _of_an_earlier_boot(path: str) -> bool:
    """Whoever made it does not live any more."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        return os.lstat(path).st_mtime < booted - _CLOCKS_DIFFER
    except FileNotFoundError:
        return False


def read(path: str) -> str:
    """The text of the file, "" if there is none. Raises OSError and UnicodeDecodeError, also for a huge one."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is not a regular file")
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise OSError(f"{path} is larger than {_MOST} bytes")
    return data.decode("utf-8")


def write(path: str, text: str, before: str) -> None:
    """Replace the file that held `before`; it keeps its owner and mode, but others than owner and group lose access.

    A new one belongs to the owner of its folder, with mode 0600. A link is followed, as kubectl does. Whoever may
    change the folder can swap it meanwhile, so all is done in the folder that is opened first: the text of one user's
    file gets into no other's. Raises OSError.
    """
    folder, name = os.path.split(os.path.realpath(path))
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        owner, mode = _known(here, name, before)
        draft = f".{name}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=here)
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=here)
        try:
            with open(number, "wb") as file:
                os.fchown(number, *owner)
                os.fchmod(number, mode)
                file.write(text.encode())
                file.flush()
                os.fsync(number)
            os.replace(draft, name, src_dir_fd=here, dst_dir_fd=here)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=here)
            raise
        os.fsync(here)
    finally:
        os.close(here)


def _known(here: int, name: str, before: str) -> tuple[tuple[int, int], int]:
    """Owner and mode for the new file. Raises OSError when what is there is not what was read."""
    try:
        number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here)
    except FileNotFoundError:
        found = os.fstat(here)
        if before:
            raise
        return (found.st_uid, found.st_gid), 0o600
    with open(number, "rb") as file:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode) or file.read(_MOST) != before.encode():
            raise OSError(f"{name} was changed meanwhile")
    return (found.st_uid, found.st_gid), stat.S_IMODE(found.st_mode) & 0o740 | 0o600


def _make_folders(folder: str) -> None:
    """Make a folder and those above it, each for the owner of the one above."""
    missing = [one for one in (Path(folder), *Path(folder).parents) if not one.exists()]
    for one in reversed(missing):
        above = os.open(one.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(one.name, 0o755, dir_fd=above)
                owner = os.fstat(above)
                # Not through a link that has taken its place.
                os.chown(one.name, owner.st_uid, owner.st_gid, dir_fd=above, follow_symlinks=False)
        finally:
            os.close(above)
