"""Archives that somebody else made: links, devices, headers and members without end, gzip that unpacks to terabytes."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
import tracemalloc
from pathlib import Path

import pytest

from controlplane.images.edge import foreign
from controlplane.images.edge.foreign import refuse_if_no_image
from nodelib.errors import Invalid


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type = kind
    for field, value in fields.items():
        setattr(found, field, value)
    return found


def archive(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as tar:
        for one in members:
            tar.addfile(one, io.BytesIO(bytes(one.size)))
    return path


def test_links_and_devices_are_not_followed(tmp_path: Path) -> None:
    links = [member(name, tarfile.SYMTYPE, linkname="/etc/shadow") for name in ("x", "../../y")]
    odd = [
        member("/dev/sda", tarfile.BLKTYPE),
        member("p", tarfile.FIFOTYPE),
        member("h", tarfile.LNKTYPE, linkname="/"),
    ]
    assert refuse_if_no_image(archive(tmp_path / "a.tar", *links, *odd, member("index.json"))) is False
    with pytest.raises(Invalid, match="no image"):
        refuse_if_no_image(archive(tmp_path / "b.tar", *links, *odd))


def test_members_without_end_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "_MOST_MEMBERS", 20_000)
    with gzip.open(tmp_path / "a.tar.gz", "wb", compresslevel=1) as file:
        for _ in range(250):
            file.write(member("x").tobuf() * 100)
    tracemalloc.start()
    try:
        with pytest.raises(Invalid, match="more than 20000 files"):
            refuse_if_no_image(tmp_path / "a.tar.gz")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_header_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    head = member("x", tarfile.XHDTYPE, size=4 << 30).tobuf(format=tarfile.GNU_FORMAT)
    (tmp_path / "a.tar").write_bytes(head)
    os.truncate(tmp_path / "a.tar", 5 << 30)
    with pytest.raises(Invalid, match="a header of"):
        refuse_if_no_image(tmp_path / "a.tar")


@pytest.mark.parametrize("limit", ["_LARGEST", "_SECONDS"])
def test_a_bomb_is_not_unpacked_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(foreign, limit, {"_LARGEST": 1 << 30, "_SECONDS": 0.05}[limit])
    monkeypatch.setattr(foreign, "_STRIDE", 1 << 20)
    with gzip.open(tmp_path / "a.tar.gz", "wb", compresslevel=1) as file:
        file.write(member("x", size=8 << 30).tobuf(format=tarfile.GNU_FORMAT))
        for _ in range(600):
            file.write(bytes(1 << 20))
    began = time.monotonic()
    with pytest.raises(Invalid, match="larger than" if limit == "_LARGEST" else "after"):
        refuse_if_no_image(tmp_path / "a.tar.gz")
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("data", [b"\x1f\x8b\x08\x00garbage", b"\x1f\x8b", b"\x00" * 1024, b"x\x1b[2J" * 1000])
def test_no_tar(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(Invalid) as caught:
        refuse_if_no_image(tmp_path / "a")
    assert "\x1b" not in str(caught.value)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tar")
    with pytest.raises(Invalid, match="no regular file"):
        refuse_if_no_image(tmp_path / "a.tar")
