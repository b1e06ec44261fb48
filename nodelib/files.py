"""Files that are replaced atomically: a reader sees the old or the new content, never a part of it."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import time

# What bytes_of() raises where somebody who has the folder has put something else in the place of a file.
NO_FILE = frozenset({errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.ENXIO, errno.ETIMEDOUT})
_MOST_TEXT = 16 << 20  # bytes
_PIECE = 1 << 16


def replace(
    path: str,
    content: str | bytes,
    mode: int = 0o600,
    *,
    durable: bool = False,
    owner: tuple[int, int] | None = None,
    at: int | None = None,
) -> None:
    """Replace the file's content. Its folder must exist. Raises OSError and leaves no temporary file then.

    `durable`: the content is on disk when the call returns; after a power failure the file is either old or new.
    `owner`: the user and the group that get the file; by default those of this process. `at`: a descriptor of the
    folder in which `path` is looked for.
    """
    folder, draft = os.path.dirname(path), draft_of(path)
    # What an interrupted call left is removed, and never written through: in a folder that others write to (a node's,
    # seen from the machine) it could be a link to any file.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=at)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=at)
    try:
        with open(handle, "wb") as file:
            if owner is not None:
                os.fchown(handle, *owner)
            os.fchmod(handle, mode)
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(handle)
        os.replace(draft, path, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=at)
        raise
    if durable:
        _sync_folder(folder or ".", at)


def draft_of(path: str) -> str:
    """Where replace() writes what becomes the file: there until the next replace() if it was killed.

    With the leading dot and this ending, readers of a whole folder (containerd, upstream's kubelet) ignore it.
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.new")


def no_link(path: str, flags: int) -> int:
    """An opener for open(): a link is not followed, and a pipe in the place of the file does not block."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o640)


def readable(found: int) -> int:
    """A descriptor to read the regular file of `found`, a descriptor opened with O_PATH, which is closed.

    A pod may have put a device file in its volume: opening it alone can do something, and reading it shows what no
    cgroup of the pod would let it see. Raises OSError for anything but a regular file, without opening it.
    """
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file")
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(found)


def holds(path: str, content: str | bytes) -> bool:
    """Whether the file has exactly this content. False if it is missing or no file; raises OSError if unreadable."""
    wanted = content.encode() if isinstance(content, str) else content
    try:
        with open(path, "rb", opener=_no_wait) as file:
            return _is_regular(file.fileno()) and file.read(len(wanted) + 1) == wanted
    except (FileNotFoundError, IsADirectoryError):
        return False


def text_of(path: str) -> str:
    """The file's text; "" if it is missing, no regular file, or cannot be read."""
    found = bytearray()
    try:
        with open(path, "rb", buffering=0, opener=_no_wait) as file:
            # In pieces: the kernel gives nothing of its own files to whoever has room for some MiB (proc_sys_read).
            while _is_regular(file.fileno()) and len(found) < _MOST_TEXT and (piece := file.read(_PIECE)):
                found += piece
    except OSError:
        return ""
    return found.decode(errors="replace")


def bytes_of(path: str, most: int, seconds: float = 10.0) -> bytes:
    """At most `most` bytes of a file, or of a pipe whose writers end in time; links are followed. Raises OSError."""
    with open(path, "rb", buffering=0, opener=_no_wait) as file:
        kind = stat.S_IFMT(os.fstat(file.fileno()).st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFIFO):
            raise OSError(errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL, "is not a file to be read", path)
        deadline, found = time.monotonic() + seconds, bytearray()
        while len(found) < most:
            try:
                piece = os.read(file.fileno(), min(most - len(found), _PIECE))
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(errno.ETIMEDOUT, "is a pipe that its writer does not close", path) from None
                select.select([file], [], [], left)
                continue
            if not piece:
                break
            found += piece
        return bytes(found)


def _no_wait(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o640)


def _is_regular(number: int) -> bool:
    return stat.S_ISREG(os.fstat(number).st_mode)


def _sync_folder(folder: str, at: int | None) -> None:
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
