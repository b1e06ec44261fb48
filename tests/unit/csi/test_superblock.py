"""Sizes of file systems by their first bytes, which a pod may have written."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csi import superblock


def ext4(blocks: int, log: int, *, high: int = 0, incompat: int = 0x80, magic: int = 0xEF53) -> bytes:
    head = bytearray(superblock.HEAD)
    for at, form, value in ((4, "<I", blocks), (24, "<I", log), (56, "<H", magic), (96, "<I", incompat)):
        struct.pack_into(form, head, 1024 + at, value)
    struct.pack_into("<I", head, 1024 + 336, high)
    return bytes(head)


@pytest.mark.parametrize(
    ("fs_type", "head", "size"),
    [
        ("ext4", ext4(8192, 2), 32 << 20),
        ("ext4", ext4(8192, 0), 8 << 20),
        ("ext4", ext4(1, 2, high=1), 4096 * ((1 << 32) + 1)),
        ("ext4", ext4(1, 2, high=1, incompat=0), 4096),
        ("ext4", ext4(1, 2, magic=1), 0),
        ("ext4", ext4(1, 60), 0),
        ("xfs", b"XFSB" + struct.pack(">IQ", 4096, 1000) + bytes(2032), 4096000),
        ("xfs", b"xfsb" + bytes(2044), 0),
        ("ext4", b"", 0),
    ],
    ids=["4 KiB", "1 KiB", "64 bit", "not 64 bit", "none", "absurd block", "xfs", "not xfs", "short"],
)
def test_size(fs_type: str, head: bytes, size: int) -> None:
    assert superblock.size_of(fs_type, head) == size


@given(st.sampled_from(["ext4", "xfs"]), st.binary(max_size=superblock.HEAD))
def test_any_bytes(fs_type: str, head: bytes) -> None:
    assert superblock.size_of(fs_type, head.ljust(superblock.HEAD, b"\xff")) >= 0
