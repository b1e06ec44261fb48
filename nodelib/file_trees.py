"""Walk and remove directory trees that somebody else writes: of any depth and width, and changing meanwhile.

A tree is walked from open directory to open directory. No path is put together, so none can be too long, and no name is
resolved twice, so no link and no rename leads out of the tree. Nothing recurses, and the number of open directories and
of names in memory is bounded. Blocking: call it in a thread (nodelib/threads.py).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from nodelib.openat2 import RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV, openat2

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = 32  # levels above the current one that stay open; those further up are found again through ".."
_NAMES = 250_000  # names of closed levels that may be held at a time
_PINNED = 100  # levels that stay open because they have more names than that
_PASSES = 50  # times that one directory is listed because its names change meanwhile

_Name = tuple[str, bool, int]  # name, whether it is a directory, inode number


class Kind(Enum):
    """What a step of a walk found."""

    ENTER = auto()  # a directory, before what is in it
    FILE = auto()  # anything that is no directory: a link, a socket, a device, too
    LEAVE = auto()  # a directory, after what is in it
    MOUNT = auto()  # a directory on which something is mounted: it is not entered
    FAILED = auto()  # something that cannot be read


class Step(NamedTuple):
    """One finding. `folder`: the open directory that holds it; `handle`: itself, open (ENTER and LEAVE only).

    Both descriptors are the walk's, and are valid until the next step.
    """

    kind: Kind
    folder: int
    name: str
    handle: int = -1
    inode: int = 0
    error: OSError | None = None


class Walk:
    """All that is in the directory `path`, by one pass over an iterator; itself comes first (ENTER) and last (LEAVE).

    Directories come before (ENTER) and after (LEAVE) what they hold. `crosses_mounts`: enter what is mounted in the
    tree, too. `empties`: the caller removes everything that it is shown, each directory when it is left.
    `follows_top`: `path` itself may be a link. Iterating raises OSError when `path` cannot be opened, ESTALE when a
    directory in a deep tree was moved while the walk was in it.
    """

    def __init__(
        self, path: str, *, crosses_mounts: bool = False, empties: bool = False, follows_top: bool = False
    ) -> None:
        self._path = path.rstrip("/") or "/"
        self._crosses, self._empties, self._follows = crosses_mounts, empties, follows_top
        self._levels: list[_Level] = []
        self._held = self._pinned = 0

    def missed(self, step: Step) -> None:
        """The caller did not find what the step names: if it only has another name by now, it is shown again."""
        self._levels[-1].missed.add(step.inode)

    def again(self) -> bool:
        """Show once more what is in the directory that is being left; False: that was done too often."""
        return self._levels[-1].list_again()

    def __iter__(self) -> Iterator[Step]:
        parent, name = os.path.split(self._path)
        base = os.open(parent or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = _DIRECTORY & ~os.O_NOFOLLOW if self._follows else _DIRECTORY
            self._levels.append(_Level(name, os.open(name or ".", flags, dir_fd=base)))
            yield from self._walk(base)
        finally:
            while self._levels:
                self._levels.pop().close()
            os.close(base)

    def _walk(self, base: int) -> Iterator[Step]:
        levels = self._levels
        yield Step(Kind.ENTER, base, levels[0].name, levels[0].handle)
        while levels:
            level = levels[-1]
            try:
                found = level.next()
            except OSError as error:
                level.end()
                yield Step(Kind.FAILED, level.handle, ".", error=error)
                continue
            if found is None:
                yield from self._leave(base)
            elif found[1]:
                yield from self._enter(level, found)
            else:
                yield Step(Kind.FILE, level.handle, found[0], inode=found[2])

    def _enter(self, level: _Level, found: _Name) -> Iterator[Step]:
        name, _, inode = found
        try:
            child = _Level(name, self._open(level.handle, name), inode)
        except FileNotFoundError:
            level.missed.add(inode)
        except OSError as error:
            kinds = {errno.ENOTDIR: Kind.FILE, errno.ELOOP: Kind.FILE, errno.EXDEV: Kind.MOUNT}
            yield Step(kinds.get(error.errno or 0, Kind.FAILED), level.handle, name, inode=inode, error=error)
        else:
            self._levels.append(child)
            self._close_far_level()
            yield Step(Kind.ENTER, level.handle, name, child.handle, inode)

    def _leave(self, base: int) -> Iterator[Step]:
        levels = self._levels
        child = levels[-1]
        if child.is_elusive:
            error = OSError(errno.EAGAIN, "its files are renamed faster than they can be read")
            yield Step(Kind.FAILED, child.handle, ".", error=error)
        folder = base
        if len(levels) > 1:
            folder = levels[-2].reopened_from(child)
        yield Step(Kind.LEAVE, folder, child.name, child.handle, child.inode)
        if child.is_open_again:
            return
        levels.pop().close()
        self._held -= child.held
        self._pinned -= child.pinned

    def _open(self, folder: int, name: str) -> int:
        return os.open(name, _DIRECTORY, dir_fd=folder) if self._crosses else _open_here(folder, name)

    def _close_far_level(self) -> None:
        number = len(self._levels) - 1 - _OPEN
        if number < 1:
            return
        level = self._levels[number]
        if level.handle < 0 or level.pinned:
            return
        if self._empties:
            level.forget()
            return
        self._held -= level.held
        level.pinned = not level.set_aside(_NAMES - self._held)
        self._held += level.held
        self._pinned += level.pinned
        if self._pinned > _PINNED:
            raise OSError(errno.E2BIG, "too many directories with too many names in each other", level.name)


def named(folder: str, ending: str, *, most: int = 10_000, depth: int = 8) -> list[str]:
    """The files of a tree whose names end so, sorted, down to a depth; links to folders are not followed.

    glob's ** follows them: two links to "." in a folder are more paths than a lifetime has seconds.
    """
    found, pending, seen = list[str](), [(folder, 0)], 0
    while pending and seen < most:
        current, level = pending.pop()
        with contextlib.suppress(OSError), os.scandir(current) as entries:
            for entry in itertools.islice(entries, most - seen):
                seen += 1
                if entry.is_dir(follow_symlinks=False):
                    pending += [(entry.path, level + 1)] if level < depth else []
                elif entry.name.endswith(ending):
                    found.append(entry.path)
    return sorted(found)


def files_below(path: str) -> set[str]:
    """Paths, relative to the directory `path`, of all that is no directory there. Raises OSError."""
    found: set[str] = set()
    at: list[str] = []
    for step in Walk(path):
        match step.kind:
            case Kind.ENTER:
                at.append(step.name)
            case Kind.LEAVE:
                at.pop()
            case Kind.FAILED if step.error is not None:
                raise step.error
            case _:
                found.add("/".join([*at[1:], step.name]))
    return found


def remove(path: str) -> None:
    """Remove a file, or a directory with all that is in it; nothing happens when there is none.

    Links are removed, not followed, and a mount is never entered. Raises OSError: something is mounted in it (EBUSY),
    the file system is read-only, somebody goes on writing. What could be removed is gone then; try again.
    """
    walk = Walk(path, empties=True)
    try:
        for step in walk:
            _remove_step(walk, step)
    except NotADirectoryError:
        os.unlink(path)
    except FileNotFoundError:
        if os.path.lexists(path):
            raise


def _remove_step(walk: Walk, step: Step) -> None:
    match step.kind:
        case Kind.FILE:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # as a directory, it is shown again
                os.unlink(step.name, dir_fd=step.folder)
        case Kind.LEAVE:
            try:
                os.rmdir(step.name, dir_fd=step.folder)
            except FileNotFoundError:
                return
            except OSError as error:
                # What is there now came meanwhile, or was skipped because other names went.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not walk.again():
                    raise
        case Kind.MOUNT:
            raise OSError(errno.EBUSY, "something is mounted on it", step.name)
        case Kind.FAILED if step.error is not None:
            raise step.error


class _Level:
    """A directory that the walk is in."""

    def __init__(self, name: str, handle: int, inode: int = 0) -> None:
        self.name, self.handle, self.inode = name, handle, inode
        self.missed: set[int] = set()  # inodes that had another name when they were looked at
        self.is_elusive = self.is_open_again = self.pinned = False
        self.held = 0
        self._chased: set[int] | None = None
        self._identity = (0, 0)
        self._rest: Iterator[_Name] | None = None
        self._passes = self._shown = 0

    def next(self) -> _Name | None:
        """The next name; None at the end. Raises OSError."""
        while True:
            if self._rest is None:
                self._passes, self._shown, self._rest = self._passes + 1, 0, _names(self.handle)
                self.is_open_again = False
            for found in self._rest:
                if self._chased is None or found[2] in self._chased:
                    self._shown += 1
                    self.missed.discard(found[2])
                    return found
            if not self._shown or not self.missed:
                return None
            if self._passes > _PASSES:
                self.is_elusive = True
                return None
            self._chased, self.missed, self._rest = self.missed, set(), None

    def list_again(self) -> bool:
        self._rest, self._chased = None, None
        self.is_open_again = self._passes <= _PASSES
        return self.is_open_again

    def end(self) -> None:
        """Show no more names."""
        self._rest, self._shown = iter(()), 0

    def forget(self) -> None:
        """Close the directory; next() lists what is left of it afresh."""
        self._rest, self._passes = None, 0
        self._close()

    def set_aside(self, room: int) -> bool:
        """Close the directory and hold its other names; False: there are more than `room`, and it stays open."""
        if self._rest is not None:
            names = list(itertools.islice(self._rest, max(room, 0)))
            self.held = len(names)
            self._rest = itertools.chain(names, self._rest)
            if self.held >= room:
                return False
            self._rest = iter(names)
        self._close()
        return True

    def _close(self) -> None:
        found = os.fstat(self.handle)
        self._identity = found.st_dev, found.st_ino
        os.close(self.handle)
        self.handle = -1

    def reopened_from(self, child: _Level) -> int:
        """This directory, open again if it was closed. Raises OSError when it is not the parent any more."""
        if self.handle < 0:
            handle = os.open("..", _DIRECTORY, dir_fd=child.handle)
            found = os.fstat(handle)
            if (found.st_dev, found.st_ino) != self._identity:
                os.close(handle)
                raise OSError(errno.ESTALE, "it was moved while it was walked through", child.name)
            self.handle = handle
        return self.handle

    def close(self) -> None:
        self._rest = None
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


def _names(handle: int) -> Iterator[_Name]:
    with os.scandir(handle) as found:
        for one in found:
            yield one.name, one.is_dir(follow_symlinks=False), one.inode()


def _open_here(folder: int, name: str) -> int:
    """Open a directory unless something is mounted on it: a bind mount, of the same file system, counts too."""
    try:
        return openat2(folder, name, _DIRECTORY, RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    handle = os.open(name, _DIRECTORY, dir_fd=folder)  # Linux before 5.6
    if os.fstat(handle).st_dev == os.fstat(folder).st_dev:
        return handle
    os.close(handle)
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
