"""A file in the home of a user that other programs write too: locked as client-go does, replaced as a whole."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from nodelib import files
from nodelib.errors import Temporary

_MOST = 16 << 20  # bytes
_PAUSE = 0.05  # seconds


def home() -> str:
    """The home directory of whoever runs this: $HOME, which sudo sets to root's on Debian."""
    return os.path.expanduser("~")


def is_file(path: str) -> bool:
    return os.path.exists(path) and not os.path.isdir(path)


@contextlib.contextmanager
def locked(path: str, *, wait: float = 5.0) -> Iterator[None]:
    """Hold PATH.lock, which exists as long as somebody changes the file (lockFile in k8s.io/client-go's clientcmd).

    Raises Temporary when it does not go away in `wait` seconds, and OSError.
    """
    lock, deadline = f"{path}.lock", time.monotonic() + wait
    _make_folders(os.path.dirname(os.path.abspath(path)))
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0))
            break
        except FileExistsError as error:
            if time.monotonic() > deadline:
                raise Temporary(
                    f"another program holds its lock {lock}",
                    obj=path,
                    step="change the kubeconfig",
                    action=f"If no kubectl, kind or the like is changing the file, run `rm -f {lock}`; then try again.",
                ) from error
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(lock)


def read(path: str) -> str:
    """The text of the file, "" if there is none. Raises OSError and UnicodeDecodeError, also for a huge one."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is no regular file")
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise OSError(f"{path} is larger than {_MOST} bytes")
    return data.decode("utf-8")


def write(path: str, text: str) -> None:
    """Replace the file, which keeps its owner and mode; a new one belongs to the owner of its folder, with mode 0600.

    A link is followed, as kubectl does. Raises OSError.
    """
    target = os.path.realpath(path)
    try:
        known = os.stat(target)
        mode = stat.S_IMODE(known.st_mode)
    except FileNotFoundError:
        known, mode = os.stat(os.path.dirname(target)), 0o600
    files.replace(target, text, mode, durable=True, owner=(known.st_uid, known.st_gid))


def _make_folders(folder: str) -> None:
    """Make a folder and those above it, each for the owner of the one above."""
    missing = [one for one in (Path(folder), *Path(folder).parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o755, exist_ok=True)
        above = one.parent.stat()
        os.chown(one, above.st_uid, above.st_gid)
