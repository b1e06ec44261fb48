"""Reads manifests: the files of a directory, or the answer of a URL."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp

from agent.static.model import ManifestFile
from nodelib.errors import Temporary

_LIMIT = 10.0  # seconds for one answer, as upstream


@dataclass(slots=True)
class ManifestFolder:
    """`path`: a directory, or one file. Files that have not changed since the last time are not read again."""

    path: str
    largest: int
    _known: dict[str, tuple[tuple[int, ...], ManifestFile]] = field(default_factory=dict)

    @property
    def watched(self) -> str:
        """The directory to watch for changes."""
        return self.path if os.path.isdir(self.path) else os.path.dirname(self.path.rstrip("/")) or "/"

    async def read(self) -> tuple[ManifestFile, ...] | None:
        """All files by name, the identical values for unchanged ones; None: the path does not exist.

        Raises Temporary when the path exists and cannot be read.
        """
        return await asyncio.to_thread(self._read)

    def _read(self) -> tuple[ManifestFile, ...] | None:
        try:
            if os.path.isdir(self.path):
                names = [os.path.join(self.path, name) for name in sorted(os.listdir(self.path)) if name[0] != "."]
            else:
                os.stat(self.path)
                names = [self.path]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Temporary(
                str(error),
                obj=f"manifests {self.path}",
                step="list",
                action="Check its permissions; the agent tries again.",
            ) from error
        found = [one for name in names if (one := self._file(name)) is not None]
        there = set(names)
        self._known = {path: known for path, known in self._known.items() if path in there}
        return tuple(found)

    def _file(self, path: str) -> ManifestFile | None:
        try:
            # Non-blocking: a pipe in the directory must not block its reader.
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._remember(path, (), ManifestFile(path, problem=str(error)))
        try:
            status = os.fstat(handle)
            mark = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev)
            known = self._known.get(path)
            if known is not None and known[0] == mark:
                return known[1]
            if not stat.S_ISREG(status.st_mode):
                return self._remember(path, mark, ManifestFile(path, problem="it is not a regular file"))
            with open(handle, "rb", closefd=False) as file:
                data = file.read(self.largest + 1)
            if len(data) > self.largest:  # nothing of it is kept
                return self._remember(path, mark, ManifestFile(path, problem=f"it is larger than {self.largest} bytes"))
            return self._remember(path, mark, ManifestFile(path, data))
        except OSError as error:
            return self._remember(path, (), ManifestFile(path, problem=str(error)))
        finally:
            os.close(handle)

    def _remember(self, path: str, mark: tuple[int, ...], found: ManifestFile) -> ManifestFile:
        known = self._known.get(path)
        if known is not None and known[1] == found:
            found = known[1]
        self._known[path] = (mark, found)
        return found


class ManifestUrl:
    """One URL, requested with the headers of staticPodURLHeader."""

    def __init__(self, url: str, headers: Mapping[str, Sequence[str]], largest: int) -> None:
        self.url, self._largest = url, largest
        self._headers = [(name, value) for name, values in headers.items() for value in values]

    async def read(self) -> bytes:
        """Raises Temporary for anything but an answer of 200."""
        try:
            timeout = aiohttp.ClientTimeout(total=_LIMIT)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(self.url, headers=self._headers) as answer,
            ):
                if answer.status != 200:
                    raise self._failed(f"it answered {answer.status} {answer.reason}")
                data = bytearray()
                async for chunk in answer.content.iter_any():
                    data += chunk
                    if len(data) > self._largest:
                        break
                return bytes(data)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise self._failed(str(error) or type(error).__name__) from error

    def _failed(self, problem: str) -> Temporary:
        return Temporary(
            problem,
            obj=f"manifest {self.url}",
            step="read static pods",
            action="Check staticPodURL and its server; it is tried again, and the pods from it keep running.",
        )
