"""The file operations of a cgroup file system, and the kernel's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol

from nodelib.cgroups import groups_below


class FoundGroup(Protocol):
    """A cgroup as Files.below() found it (nodelib.cgroups.Group)."""

    @property
    def name(self) -> str: ...

    def read(self, file: str) -> str: ...

    def write(self, file: str, text: str) -> None: ...

    def remove(self) -> None: ...


class Files(Protocol):
    """The file operations of a cgroup file system."""

    def mkdir(self, path: str) -> None: ...

    def read(self, path: str) -> str: ...

    def write(self, path: str, text: str) -> None: ...

    def folders(self, path: str) -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def below(self, path: str) -> Iterator[FoundGroup]:
        """The cgroup and all below it, the deepest first; none if it does not exist. Each is valid until the next."""
        ...


class KernelFiles:
    """The real file operations."""

    def mkdir(self, path: str) -> None:
        os.mkdir(path, 0o755)

    def read(self, path: str) -> str:
        with open(path, encoding="ascii") as file:
            return file.read()

    def write(self, path: str, text: str) -> None:
        # Without O_CREAT: a file that the kernel does not offer must be an error.
        handle = os.open(path, os.O_WRONLY)
        try:
            os.write(handle, text.encode("ascii"))
        finally:
            os.close(handle)

    def folders(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]

    def exists(self, path: str) -> bool:
        return os.path.isdir(path)

    def below(self, path: str) -> Iterator[FoundGroup]:
        return groups_below(path)
