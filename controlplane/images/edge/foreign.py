"""Checks an archive made elsewhere (docker save, podman save, buildah, skopeo) before nodes load it."""

from __future__ import annotations

import gzip
import shlex
import tarfile
import time
import zlib
from pathlib import Path
from typing import IO, cast

from nodelib.errors import Invalid, NotFound
from nodelib.text import one_line

_STEP = "load an image"
_GZIP = b"\x1f\x8b"
_OTHER = {b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}
_MOST_MEMBERS = 200_000
_MOST_READ = 1 << 20  # bytes; headers with long names have some thousands
_LARGEST = 64 << 30
_STRIDE = 64 << 20
_SECONDS = 300.0
_MARKS = ("index.json", "manifest.json", "oci-layout")


def refuse_if_no_image(path: Path) -> bool:
    """Whether the archive is compressed with gzip. Raises NotFound, or Invalid for what is no OCI or docker archive."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise Invalid("is no regular file", obj=str(path), step=_STEP, action="Give a file.")
        with path.open("rb") as file:
            head = file.read(6)
    except FileNotFoundError as error:
        raise NotFound(
            "no such file", obj=str(path), step=_STEP, action="`docker save -o FILE IMAGE` makes one."
        ) from error
    except OSError as error:
        raise Invalid(error.strerror or str(error), obj=str(path), step=_STEP, action="Give a file.") from error
    for magic, name in _OTHER.items():
        if head.startswith(magic):
            raise Invalid(
                f"it is compressed with {name}",
                obj=str(path),
                step=_STEP,
                action=f"Unpack it first: {name} -d {shlex.quote(str(path))}",
            )
    if not _holds_an_image(path, gzipped=head.startswith(_GZIP)):
        raise Invalid(
            f"a tar without {' or '.join(_MARKS[:2])}: no image",
            obj=str(path),
            step=_STEP,
            action="Use `docker save`, not `docker export`; an OCI layout must lie at the top of the archive.",
        )
    return head.startswith(_GZIP)


def _holds_an_image(path: Path, *, gzipped: bool) -> bool:
    try:
        with path.open("rb") as file:
            unpacked = gzip.GzipFile(fileobj=file) if gzipped else file
            with tarfile.open(fileobj=cast("IO[bytes]", _Bounded(unpacked)), mode="r:") as tar:
                for number, member in enumerate(tar):
                    if member.name.removeprefix("./") in _MARKS:
                        return True
                    tar.members.clear()  # type: ignore[attr-defined]  # or it keeps all of them
                    if number > _MOST_MEMBERS:
                        raise tarfile.ReadError(f"more than {_MOST_MEMBERS} files")
        return False
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise Invalid(
            f"not a readable tar: {one_line(str(error), 200)}",
            obj=str(path),
            step=_STEP,
            action="Make it again: `docker save -o FILE IMAGE`, or skopeo copy ... oci-archive:FILE",
        ) from error


class _Bounded:
    """What tarfile reads, with limits: a small archive may unpack without end, or ask for a header of gigabytes."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile) -> None:
        self._file = file
        self._end = time.monotonic() + _SECONDS

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, place: int) -> int:
        if place > _LARGEST:
            raise tarfile.ReadError(f"larger than {_LARGEST >> 30} GiB unpacked")
        while (here := self._file.tell()) < place:
            self._check_time()
            if self._file.seek(min(place, here + _STRIDE)) <= here:
                break  # the end
        return self._file.seek(place)

    def read(self, size: int) -> bytes:
        self._check_time()
        if size > _MOST_READ:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return self._file.read(size)

    def _check_time(self) -> None:
        if time.monotonic() > self._end:
            raise tarfile.ReadError(f"no image in it after {_SECONDS:g} s")
