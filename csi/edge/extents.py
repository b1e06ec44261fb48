"""How much of an image's space is not its own: blocks that it shares with copies. Blocking; raises OSError.

https://docs.kernel.org/filesystems/fiemap.html; XFS and btrfs tell of each extent whether another file has it too.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import struct

_FIEMAP = 0xC020660B
_HEAD = struct.Struct("=QQIIII")  # struct fiemap: start, length, flags, mapped, room
_EXTENT = struct.Struct("=QQQ16xI12x")  # struct fiemap_extent: logical, physical, length, flags
_LAST, _SHARED = 0x1, 0x2000
_AT_ONCE = 512  # extents of one call
_MOST = 4096  # extents that are looked at: whoever writes to a volume may make millions


def shared(path: str) -> int:
    """Bytes that the file shares with others; of a file in very many pieces all that follows the first ones."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return _shared(handle, os.fstat(handle).st_blocks * 512)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY):  # it has no extents to tell of, and shares none
            return 0
        raise
    finally:
        os.close(handle)


def _shared(handle: int, occupied: int) -> int:
    found = seen = at = 0
    for _ in range(_MOST // _AT_ONCE):
        buffer = array.array(
            "B", _HEAD.pack(at, (1 << 64) - 1 - at, 0, 0, _AT_ONCE, 0) + bytes(_EXTENT.size * _AT_ONCE)
        )
        fcntl.ioctl(handle, _FIEMAP, buffer)
        count = _HEAD.unpack_from(buffer)[3]
        for logical, _, length, flags in _EXTENT.iter_unpack(buffer[_HEAD.size : _HEAD.size + count * _EXTENT.size]):
            seen += length
            found += length if flags & _SHARED else 0
            at = logical + length
            if flags & _LAST:
                return found
        if not count:
            return found
    return found + max(0, occupied - seen)
