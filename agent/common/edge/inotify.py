"""Changes of directories from the kernel (inotify(7)): one instance, many watches.

A user may have 128 instances by default (fs.inotify.max_user_instances), and a node may follow more directories.
Other programs may have used them up: then directories are looked at every few seconds, until inotify can be had again.
(Upstream's kubelet exits, or goes without the notice, depending on who asks.)
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import logging
import os
import struct
from collections.abc import Collection
from types import TracebackType

from agent.common.edge import looks
from nodelib.errors import Temporary

log = logging.getLogger(__name__)

_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_OPEN = 0x20
_IGNORED = 0x8000
_ONLYDIR = 0x1000000
_MASK = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_HEAD = struct.Struct("iIII")
_LOOK_INTERVAL = 2.0  # seconds between two looks without inotify
_RETRY_INTERVAL = 60.0  # seconds between two tries to have inotify again
_USED_UP = {errno.ENOSPC, errno.ENOMEM}  # of inotify_add_watch; the others say that the path is wrong
_ACTION = (
    "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches, for example: "
    "sysctl -w fs.inotify.max_user_instances=1024 fs.inotify.max_user_watches=65536"
)


class Watch:
    """Changes of one directory since the last wait. Leave the `with` block to end it.

    `keeps_names`: of what is deleted, for take_deleted(). Whoever may write to the directory chooses how many.
    `ended`: the kernel has removed the watch, because the directory was deleted.
    """

    def __init__(self, owner: Inotify, path: str, mask: int, keeps_names: bool = False) -> None:
        self._owner, self._keeps_names = owner, keeps_names
        self.path, self.mask = path, mask
        self.descriptor = -1  # of the kernel's watch; -1: there is none, and somebody has to look
        self.seen: looks.Look | None = None  # the last time that somebody did
        self._changed = asyncio.Event()
        self._writer_closed = False
        self._deleted: set[str] = set()
        self.ended = False

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):  # type: ignore[no-untyped-def]
        self._owner.remove(self)

    async def wait(self, timeout: float) -> bool:
        """Until something changes, at most `timeout` seconds. True: a file that was open for writing was closed."""
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
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

    def notify(self, mask: int, deleted: Collection[str] = ()) -> None:
        """What has happened, all together, and which names were deleted."""
        self._writer_closed = self._writer_closed or bool(mask & _CLOSE_WRITE)
        if self._keeps_names:
            self._deleted.update(deleted)
        if mask & _IGNORED:
            self.ended = True
        self._changed.set()

    def look(self) -> looks.Look:
        """What is there now. It may wait for a disk."""
        return looks.open_file(self.path) if self.mask & _OPEN else looks.directory(self.path)

    def compare(self, now: looks.Look) -> None:
        """Report what has changed since the last look; at the first one, that something may have."""
        before, self.seen = self.seen, now
        if now.there is None or (before is not None and before.there != now.there):
            self.notify(_IGNORED)
        elif before is None:
            self.notify(_MODIFY)
        elif now.holders - before.holders:
            self.notify(_OPEN)
        elif now.entries != before.entries:
            self.notify(_MODIFY, before.entries.keys() - now.entries.keys())


class Inotify:
    """Create it inside the running loop; end it with close(). `what` is watched, for the log.

    Where the kernel has no instance or watch left, it looks itself every few seconds, and tries again each minute.
    """

    def __init__(self, what: str = "directories") -> None:
        self._what = what
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._loop = asyncio.get_running_loop()
        self._fd, self._closed = -1, False
        self._watches: dict[int, set[Watch]] = {}
        self._looked_at: set[Watch] = set()
        self._looking: asyncio.Task[None] | None = None
        self._warned = False
        self._open()

    def watch(self, directory: str, *, keeps_names: bool = False) -> Watch:
        """Raises Temporary when the kernel refuses for the directory's sake (there is none)."""
        return self._watch(directory, _MASK | _ONLYDIR, keeps_names)

    def watch_file(self, path: str) -> Watch:
        """Changes when the file is opened. Raises Temporary as watch() does."""
        return self._watch(path, _OPEN)

    def _watch(self, path: str, mask: int, keeps_names: bool = False) -> Watch:
        watch = Watch(self, path, mask, keeps_names)
        if not self._closed and not self._add(watch):
            self._look_at(watch)
        return watch

    def _open(self) -> bool:
        """Whether there is an instance now."""
        if self._fd >= 0:
            return True
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            self._warn("inotify_init1")
            return False
        self._loop.add_reader(self._fd, self._readable)
        return True

    def _add(self, watch: Watch) -> bool:
        """Whether the kernel watches it from now on. Raises Temporary when the path is wrong."""
        if not self._open():
            return False
        descriptor = self._libc.inotify_add_watch(self._fd, os.fsencode(watch.path), watch.mask)
        if descriptor < 0:
            if ctypes.get_errno() not in _USED_UP:
                raise self._failed(f"watch {watch.path}")
            self._warn("inotify_add_watch")
            return False
        watch.descriptor = descriptor
        self._watches.setdefault(descriptor, set()).add(watch)
        return True

    def _look_at(self, watch: Watch) -> None:
        try:
            os.stat(watch.path if watch.mask & _OPEN else os.path.join(watch.path, "."))
        except OSError as error:
            raise Temporary(error.strerror or str(error), obj=watch.path, step="watch") from error
        if watch.mask & _OPEN:
            watch.seen = watch.look()  # who has it open already has not opened it just now
        self._looked_at.add(watch)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="look at directories")

    async def _look(self) -> None:
        """Until the kernel watches all of them."""
        retry_at = self._loop.time() + _RETRY_INTERVAL
        while self._looked_at:
            if self._loop.time() >= retry_at:
                self._return_to_inotify()
                retry_at = self._loop.time() + _RETRY_INTERVAL
            for watch in tuple(self._looked_at):
                now = await asyncio.to_thread(watch.look)
                if watch in self._looked_at:
                    watch.compare(now)
                if watch.ended:
                    self._looked_at.discard(watch)
            await asyncio.sleep(_LOOK_INTERVAL)

    def _return_to_inotify(self) -> None:
        for watch in tuple(self._looked_at):
            # One whose directory has gone ends with the next look.
            with contextlib.suppress(Temporary):
                if self._add(watch):
                    self._looked_at.discard(watch)
                    watch.notify(_MODIFY)  # perhaps, since the last look
        if not self._looked_at and self._warned:
            self._warned = False
            log.info("inotify reports changes of %s again", self._what)

    def remove(self, watch: Watch) -> None:
        self._looked_at.discard(watch)
        descriptor = watch.descriptor
        left = self._watches.get(descriptor)
        if left is None:
            return
        left.discard(watch)
        if not left:
            del self._watches[descriptor]
            self._libc.inotify_rm_watch(self._fd, descriptor)

    def close(self) -> None:
        """Idempotent: the descriptor may belong to another file by then."""
        self._closed = True
        self._looked_at.clear()
        if self._looking is not None:
            self._looking.cancel()
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
        # Together: there may be thousands of events, and hundreds who watch the same directory.
        seen: dict[int, int] = {}
        deleted: dict[int, set[str]] = {}
        at = 0
        while at < len(data):
            descriptor, mask, _, length = _HEAD.unpack_from(data, at)
            if mask & _DELETE:
                name = os.fsdecode(data[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0"))
                deleted.setdefault(descriptor, set()).add(name)
            seen[descriptor] = seen.get(descriptor, 0) | mask
            at += _HEAD.size + length
        for descriptor, mask in seen.items():
            # A queue overflow has descriptor -1 and concerns every watch.
            watches = self._watches.get(descriptor, ()) if descriptor >= 0 else set().union(*self._watches.values())
            for watch in tuple(watches):
                watch.notify(mask, deleted.get(descriptor, ()))
            if mask & _IGNORED:
                self._watches.pop(descriptor, None)

    def _warn(self, step: str) -> None:
        """Once, until inotify is used again."""
        if not self._warned:
            self._warned = True
            reason = os.strerror(ctypes.get_errno())
            text = "%s: %s: changes of %s are noticed up to %g s late, until inotify can be used again; %s"
            log.warning(text, step, reason, self._what, _LOOK_INTERVAL, _ACTION)

    def _failed(self, step: str) -> Temporary:
        return Temporary(os.strerror(ctypes.get_errno()), obj="inotify", step=step)
