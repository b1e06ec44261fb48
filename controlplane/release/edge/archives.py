"""Writes wheels and xz files that are the same every time: sorted, with one time, fixed modes and no owner."""

from __future__ import annotations

import base64
import hashlib
import lzma
import os
import shutil
import stat
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path

from controlplane.images.edge.archive import replacing
from controlplane.release.model import Entry

_CHUNK = 1 << 20
_DICTIONARY = 96 << 20  # the images' archive has CoreDNS twice, with less than this between them
_FORMAT = "1"  # another one compresses again


def write_wheel(target: Path, entries: Iterable[Entry], record: str, moment: int) -> None:
    """Write the zip with its RECORD, at the path `record`, as the last file. `moment`: seconds since the epoch."""
    lines = []
    stamp = time.gmtime(moment)[:6]
    with replacing(target) as raw, zipfile.ZipFile(raw, "w") as wheel:
        for entry in entries:
            digest, size = _add(wheel, entry, stamp)
            lines.append(f"{entry.path},sha256={digest},{size}\n")
        _add(wheel, Entry(record, "".join((*lines, f"{record},,\n")).encode()), stamp)


def _add(wheel: zipfile.ZipFile, entry: Entry, stamp: tuple[int, ...]) -> tuple[str, int]:
    info = zipfile.ZipInfo(entry.path, (stamp[0], stamp[1], stamp[2], stamp[3], stamp[4], stamp[5]))
    info.create_system = 3  # Unix, whatever the machine
    info.external_attr = (stat.S_IFREG | entry.mode) << 16
    info.compress_type = zipfile.ZIP_STORED if entry.stored else zipfile.ZIP_DEFLATED
    digest = hashlib.sha256()
    size = len(entry.content) if isinstance(entry.content, bytes) else entry.content.stat().st_size
    info.file_size = size
    with wheel.open(info, "w") as out:
        if isinstance(entry.content, bytes):
            digest.update(entry.content)
            out.write(entry.content)
        else:
            with entry.content.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                    out.write(chunk)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode(), size


def compressed(source: Path, cache: Path, *, program: bool) -> Path:
    """The file as xz, made once for each content. `program`: for x86, branches are converted before, as xz offers."""
    # Not for archives: equal programs at different offsets would no longer be equal.
    branches = [{"id": lzma.FILTER_X86}] if program and os.uname().machine == "x86_64" else []
    filters = [*branches, {"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": _DICTIONARY}]
    key = hashlib.sha256(f"{_FORMAT} {filters!r} {digest_of(source)}".encode()).hexdigest()[:32]
    target = cache / f"{key}.xz"
    if not target.exists():
        with (
            source.open("rb") as file,
            replacing(target) as raw,
            lzma.open(raw, "wb", check=lzma.CHECK_CRC64, filters=filters) as out,
        ):
            shutil.copyfileobj(file, out, _CHUNK)
    return target


def digest_of(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
