"""A file tree that `install` writes to: this host's, or one of another user, who may put any link into it."""

from __future__ import annotations

import contextlib
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


class Tree:
    """Links of the tree are followed as programs that run in it would (chroot): none leads out. All raise OSError."""

    def __init__(self, root: str, *, make: bool = False) -> None:
        """`make` it if it is missing. Raises Invalid for a link: it may lead to this host's own tree."""
        try:
            if make:
                os.makedirs(root, exist_ok=True)
            self._root = os.open(root, _FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise _unusable(root, error.strerror or str(error)) from error
        if self.is_host and os.path.abspath(root) != "/":
            os.close(self._root)
            raise _unusable(root, "is this host's own tree: leave --root out")

    @property
    def is_host(self) -> bool:
        """Whether it is this host's own."""
        return os.path.samestat(os.fstat(self._root), os.stat("/"))

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
            with self._folder_of(path) as (folder, name):
                number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except OSError:
            return None
        with open(number, "rb") as file:
            return file.read(_MOST) if stat.S_ISREG(os.fstat(number).st_mode) else None

    def write(self, path: str, text: str, mode: int) -> None:
        """Replace a file atomically; missing folders are made."""
        self._make(os.path.dirname(path))
        with self._folder_of(path) as (folder, name):
            files.replace(f"/proc/self/fd/{folder}/{name}", text, mode)

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
        return openat2(self._root, path.lstrip("/") or ".", _FOLDER, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)


def _unusable(root: str, why: str) -> Invalid:
    return Invalid(why, obj=root, step="open the file tree", action="Name the directory itself. Nothing was changed.")
