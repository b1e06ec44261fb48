"""Loop devices on image files: loop(4), linux/loop.h. Blocking calls; they raise OSError.

An image is found by device and inode, not by its path. A device for a mount clears itself with the last unmount, so a
driver that is killed leaves none; one for a block volume stays until it is detached.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass

from nodelib.errors import Permanent

MAJOR = 7
_CONTROL = "/dev/loop-control"
_CLR_FD, _GET_STATUS64, _SET_CAPACITY, _CONFIGURE, _GET_FREE = 0x4C01, 0x4C05, 0x4C07, 0x4C0A, 0x4C82
_AUTOCLEAR, _DIRECT_IO = 4, 16
_INFO = struct.Struct("=QQQQQIIII64s64s32sQQ")  # struct loop_info64
_CONFIG = struct.Struct(f"=II{_INFO.size}s64x")  # struct loop_config
_DEVICE = re.compile(r"loop\d+", re.ASCII)
_ATTEMPTS = 32


@dataclass(frozen=True, slots=True)
class Loop:
    """A device, and whether it clears itself when nobody has it open."""

    number: int
    clears_itself: bool

    @property
    def path(self) -> str:
        return f"/dev/loop{self.number}"

    @property
    def device(self) -> int:
        """As in st_dev of a file on it."""
        return os.makedev(MAJOR, self.number)


def find(image: str) -> list[Loop]:
    """The devices on this image."""
    try:
        wanted = os.lstat(image)
    except FileNotFoundError:
        return []
    found = []
    for name in filter(_DEVICE.fullmatch, os.listdir("/sys/block")):
        if not os.path.exists(f"/sys/block/{name}/loop"):
            continue
        number = int(name[4:])
        with suppress(OSError):  # it was cleared meanwhile
            # For reading: udev would probe the device anew after whoever had it open for writing.
            handle = _open(number, os.O_RDONLY)
            try:
                status = _INFO.unpack(fcntl.ioctl(handle, _GET_STATUS64, bytes(_INFO.size)))
            finally:
                os.close(handle)
            if (status[0], status[1]) == (wanted.st_dev, wanted.st_ino):
                found.append(Loop(number, bool(status[8] & _AUTOCLEAR)))
    return sorted(found, key=lambda one: one.number)


def attach(image: str, label: str, *, clears_itself: bool) -> tuple[Loop, int]:
    """A device on this image, and a descriptor that keeps it until it is closed: a mount keeps it, too.

    A device that is there already is taken: two would not know of each other's writes.
    """
    for known in find(image):
        handle = _open(known.number, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _GET_STATUS64, bytes(_INFO.size))  # it may have been cleared meanwhile
        except OSError:
            os.close(handle)
            continue
        return known, handle
    backing = os.open(image, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return _configure(backing, label, _AUTOCLEAR if clears_itself else 0)
    finally:
        os.close(backing)


def detach(loop: Loop) -> None:
    """Does nothing when it is detached. Who has it open keeps it until he closes it."""
    handle = _open(loop.number)
    try:
        fcntl.ioctl(handle, _CLR_FD)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    finally:
        os.close(handle)


def grow(loop: Loop) -> None:
    """Let the device have the size that its image has now."""
    handle = _open(loop.number)
    try:
        fcntl.ioctl(handle, _SET_CAPACITY)
    finally:
        os.close(handle)


def is_mounted(loop: Loop) -> bool:
    """Whether its file system is mounted, in whatever mount namespace: mountinfo(5) shows only those of this one.

    A file system has its device for itself (O_EXCL) as long as it is mounted anywhere.
    """
    try:
        os.close(_open(loop.number, os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return True
        if error.errno != errno.ENXIO:  # it is being cleared
            raise
    return False


def _configure(backing: int, label: str, flags: int) -> tuple[Loop, int]:
    try:
        control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise Permanent(
            "there is none", obj=_CONTROL, step="attach an image", action="Load the module: `modprobe loop`."
        ) from error
    try:
        for _ in range(_ATTEMPTS):
            number = fcntl.ioctl(control, _GET_FREE)
            handle = _open(number)
            info = _INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, flags | _DIRECT_IO, label.encode()[:63], b"", b"", 0, 0)
            try:
                fcntl.ioctl(handle, _CONFIGURE, _CONFIG.pack(backing, 0, info))
            except OSError as error:
                os.close(handle)
                if error.errno == errno.EBUSY:  # another process was quicker
                    continue
                raise
            return Loop(number, bool(flags)), handle
    finally:
        os.close(control)
    raise OSError(errno.EBUSY, "other processes take every free loop device", _CONTROL)


def _open(number: int, flags: int = os.O_RDWR) -> int:
    path = f"/dev/loop{number}"
    with suppress(FileExistsError):
        if not os.path.exists(path):  # in a node of `up` or a container, /dev has only some of them
            os.mknod(path, stat.S_IFBLK | 0o660, os.makedev(MAJOR, number))
    return os.open(path, flags | os.O_CLOEXEC)
