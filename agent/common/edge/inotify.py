"""Changes of directories from the kernel (inotify(7)): one instance, many watches.

A user may have 128 instances by default (fs.inotify.max_user_instances), and a node may follow more directories.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from types import TracebackType

from nodelib.errors import Temporary

_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_OPEN = 0x20
_IGNORED = 0x8000
_ONLYDIR = 0x1000000
_MASK = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_HEAD = struct.Struct("iIII")


class Watch:
    """Changes of one directory since the last wait. Leave the `with` block to end it.

    `ended`: the kernel has removed the watch, because the directory was deleted.
    """

    def __init__(self, owner: Inotify, descriptor: int) -> None:
        self._owner = owner
        self._descriptor = descriptor
        self._changed = asyncio.Event()
        self._writer_closed = False
        self._deleted: set[str] = set()
        self.ended = False

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):  # type: ignore[no-untyped-def]
        self._owner.remove(self, self._descriptor)

    async def wait(self, timeout: float) -> bool:
        """Until something changes, at most `timeout` seconds. True: a file that was open for writing was closed."""
        try:
            await asyncio.wait_for(self._changed.wait(), timeout)
        except TimeoutError:
            return False
        self._changed.clear()
        closed, self._writer_closed = self._writer_closed, False
        return closed

    async def changed(self) -> None:
        """Until something changes."""
        await self._changed.wait()
        self._changed.clear()

    def take_deleted(self) -> frozenset[str]:
        """Names that were deleted since the last call, even if they exist again."""
        found, self._deleted = frozenset(self._deleted), set()
        return found

    def notify(self, mask: int, name: str) -> None:
        self._writer_closed = self._writer_closed or bool(mask & _CLOSE_WRITE)
        if mask & _DELETE:
            self._deleted.add(name)
        if mask & _IGNORED:
            self.ended = True
        self._changed.set()


class Inotify:
    """Create it inside the running loop; end it with close()."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise self._failed("inotify_init1")
        self._watches: dict[int, set[Watch]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._readable)

    def watch(self, directory: str) -> Watch:
        """Raises Temporary when the kernel refuses (no such directory, max_user_watches)."""
        return self._watch(directory, _MASK | _ONLYDIR)

    def watch_file(self, path: str) -> Watch:
        """Changes when the file is opened. Raises Temporary as watch() does."""
        return self._watch(path, _OPEN)

    def _watch(self, path: str, mask: int) -> Watch:
        descriptor = self._libc.inotify_add_watch(self._fd, os.fsencode(path), mask)
        if descriptor < 0:
            raise self._failed(f"watch {path}")
        watch = Watch(self, descriptor)
        self._watches.setdefault(descriptor, set()).add(watch)
        return watch

    def remove(self, watch: Watch, descriptor: int) -> None:
        left = self._watches.get(descriptor)
        if left is None:
            return
        left.discard(watch)
        if not left:
            del self._watches[descriptor]
            self._libc.inotify_rm_watch(self._fd, descriptor)

    def close(self) -> None:
        """Idempotent: the descriptor may belong to another file by then."""
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._watches.clear()

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            descriptor, mask, _, length = _HEAD.unpack_from(data, at)
            name = os.fsdecode(data[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0"))
            at += _HEAD.size + length
            # A queue overflow has descriptor -1 and concerns every watch.
            watches = self._watches.get(descriptor, ()) if descriptor >= 0 else set().union(*self._watches.values())
            for watch in tuple(watches):
                watch.notify(mask, name)
            if mask & _IGNORED:
                self._watches.pop(descriptor, None)

    def _failed(self, step: str) -> Temporary:
        code = ctypes.get_errno()
        return Temporary(
            os.strerror(code),
            obj="inotify",
            step=step,
            action="Check fs.inotify.max_user_instances and max_user_watches.",
        )
