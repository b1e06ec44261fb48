"""How large a file system is, from the first bytes of its image."""

from __future__ import annotations

import struct

HEAD = 2048
"""Bytes that are needed."""
_EXT4, _EXT4_MAGIC = 1024, 0xEF53


def size_of(fs_type: str, head: bytes) -> int:
    """Bytes; 0 when there is no such file system in it."""
    if len(head) < HEAD:
        return 0
    return _ext4(head[_EXT4:]) if fs_type == "ext4" else _xfs(head)


def _ext4(block: bytes) -> int:
    # fs/ext4/ext4.h, struct ext4_super_block: s_blocks_count_lo, s_log_block_size, s_magic, s_blocks_count_hi
    (low,), (log,) = struct.unpack_from("<I", block, 4), struct.unpack_from("<I", block, 24)
    (magic,), (high,) = struct.unpack_from("<H", block, 56), struct.unpack_from("<I", block, 336)
    if magic != _EXT4_MAGIC or log > 6:
        return 0
    has_high = struct.unpack_from("<I", block, 96)[0] & 0x80  # INCOMPAT_64BIT
    return int(low + (high << 32 if has_high else 0)) * (1024 << int(log))


def _xfs(head: bytes) -> int:
    # fs/xfs/libxfs/xfs_format.h, struct xfs_dsb: sb_magicnum, sb_blocksize, sb_dblocks
    magic, block_size, blocks = struct.unpack_from(">4sIQ", head)
    return int(block_size * blocks) if magic == b"XFSB" and block_size <= 65536 else 0
