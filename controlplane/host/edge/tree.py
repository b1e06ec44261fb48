"""A file tree that `install` writes to: this host's, or one of another user, who may put any link into it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from nodelib import files
from nodelib.errors import Invalid
from nodelib.openat2 import RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, openat2

_MOST = 1 << 20  # bytes of a file that is read
_FOLDER = os.O_PATH | os.O_DIRECTORY
_NO_WAIT = os.O_NOFOLLOW | os.O_NONBLOCK
_LACKS = (errno.ENOSYS, errno.EPERM)  # of an old kernel, of a seccomp filter that does not know the call


class Tree:
    """Links of the tree are followed as programs that run in it would (chroot): none leads out. All raise OSError."""

    def __init__(self, root: str, *, make: bool = False) -> None:
        """`make` it if it is missing. Raises Invalid for a link: it may lead to this host's own tree."""
        root = root and os.path.abspath(root)  # the kernel follows a link that a slash comes after
        try:
            if make:
                os.makedirs(root, exist_ok=True)
            self._root = os.open(root, _FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise _unusable(root, error.strerror or str(error)) from error
        self.is_host = os.path.samestat(os.fstat(self._root), os.stat("/"))
        if self.is_host and root.strip("/"):
            os.close(self._root)
            raise _unusable(root, "is this host's own tree: leave --root out")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._root)

    def is_there(self, path: str) -> bool:
        """Whether there is anything, a link that leads nowhere included."""
        try:
            with self._folder_of(path) as (folder, name):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def content(self, path: str) -> bytes | None:
        """What a regular file has, cut when it is large; None where there is none."""
        try:
            with (
                self._folder_of(path) as (folder, name),
                open(name, "rb", opener=lambda one, flags: os.open(one, flags | _NO_WAIT, dir_fd=folder)) as file,
            ):
                return file.read(_MOST) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
        except OSError:
            return None

    def write(self, path: str, text: str, mode: int) -> None:
        """Replace a file atomically; missing folders are made."""
        self._make(os.path.dirname(path))
        with self._folder_of(path) as (folder, name):
            files.replace(name, text, mode, at=folder)

    def missing(self, path: str) -> list[str]:
        """The folders above that write() would make."""
        found = []
        folder = os.path.dirname(path)
        while folder != "/" and not self._is_folder(folder):
            found.append(folder)
            folder = os.path.dirname(folder)
        return found

    def unlink(self, path: str) -> None:
        with self._folder_of(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def rmdir(self, path: str) -> None:
        with self._folder_of(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def _make(self, path: str) -> None:
        for one in reversed([path, *self.missing(path)]):
            if not self._is_folder(one):
                with self._folder_of(one) as (folder, name):
                    os.mkdir(name, 0o755, dir_fd=folder)

    def _is_folder(self, path: str) -> bool:
        try:
            os.close(self._opened(path))
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def _folder_of(self, path: str) -> Iterator[tuple[int, str]]:
        """The folder of a path, and the path's name in it."""
        above, _, name = path.rpartition("/")
        folder = self._opened(above)
        try:
            yield folder, name
        finally:
            os.close(folder)

    def _opened(self, path: str) -> int:
        if self.is_host:
            return os.open(path or "/", _FOLDER | os.O_CLOEXEC)
        try:
            return openat2(self._root, path.lstrip("/") or ".", _FOLDER, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)
        except OSError as error:
            if error.errno not in _LACKS:
                raise
            why = "Linux 5.6 or newer is needed for a tree that is not this host's own, and its call openat2"
            raise OSError(error.errno, why, path) from error


def _unusable(root: str, why: str) -> Invalid:
    return Invalid(why, obj=root, step="open the file tree", action="Name the directory itself. Nothing was changed.")
