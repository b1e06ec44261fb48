"""Writes and reads layers and images: deterministic tar files, written once and renamed into place."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, cast

from controlplane.images.edge.layout import read_archive
from controlplane.images.model.oci import EPOCH, INDEX, LAYER, Descriptor, Entry, EntryKind, Image, in_order
from nodelib.errors import NotFound

_CHUNK = 1 << 20
_TYPES = {
    EntryKind.FILE: tarfile.REGTYPE,
    EntryKind.DIR: tarfile.DIRTYPE,
    EntryKind.SYMLINK: tarfile.SYMTYPE,
    EntryKind.HARDLINK: tarfile.LNKTYPE,
}


class _Digesting(io.RawIOBase):
    """Passes writes on and computes their digest."""

    def __init__(self, below: IO[bytes]) -> None:
        self._below = below
        self._digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        chunk = bytes(cast(bytes, data))
        self._digest.update(chunk)
        self.size += len(chunk)
        self._below.write(chunk)
        return len(chunk)

    @property
    def digest(self) -> str:
        return "sha256:" + self._digest.hexdigest()


def read_layer(layer: Path, name: str) -> tuple[bytes, int]:
    """Content and mode of one regular file of a layer. Raises NotFound."""
    with tarfile.open(layer) as tar:
        member = next((one for one in tar if one.name == name and one.isfile()), None)
        opened = tar.extractfile(member) if member is not None else None
        if member is None or opened is None:
            raise NotFound(
                "no such file", obj=f"layer {layer}", step=f"read {name}", action="Remove the layer; it is built again."
            )
        return opened.read(), member.mode


def write_layer(entries: Iterable[Entry], target: Path, *, compress: bool) -> Descriptor:
    """Write the layer's tar, with gzip if `compress` (no time, no name); the file appears complete or not at all."""
    with replacing(target) as raw, ExitStack() as stack:
        outer = _Digesting(raw)
        below: IO[bytes] = cast(IO[bytes], outer)
        if compress:
            below = cast(IO[bytes], stack.enter_context(gzip.GzipFile("", "wb", 6, below, mtime=0)))
        inner = _Digesting(below)
        with tarfile.open(fileobj=inner, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_CHUNK) as tar:
            for entry in in_order(entries):
                _add(tar, entry)
        stack.close()
    return Descriptor(LAYER + ("+gzip" if compress else ""), outer.digest, outer.size, inner.digest)


def write_archive(image: Image, blobs: Mapping[str, Path], target: Path) -> None:
    """Write an OCI image layout as one tar; `blobs` maps each layer's digest to its file."""
    memory = {
        image.config_descriptor.digest: image.config,
        image.manifest_descriptor.digest: image.manifest,
    }
    with replacing(target) as raw, tarfile.open(fileobj=raw, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, Entry("oci-layout", content=b'{"imageLayoutVersion":"1.0.0"}'))
        _add(tar, Entry("index.json", content=image.index))
        for digest in dict.fromkeys([*memory, *(layer.digest for layer in image.layers)]):
            _add(tar, Entry(f"blobs/{digest.replace(':', '/')}", content=memory.get(digest) or blobs[digest]))


def merge_archives(archives: Iterable[Path], target: Path) -> None:
    """Write the images of several uncompressed archives into one; shared blobs are stored once."""
    found = [read_archive(path) for path in archives]
    blobs = {digest: blob for archive in found for digest, blob in archive.blobs.items()}
    manifests = [one for archive in found for one in archive.names.values()]
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    with replacing(target) as raw, tarfile.open(fileobj=raw, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, Entry("oci-layout", content=b'{"imageLayoutVersion":"1.0.0"}'))
        _add(tar, Entry("index.json", content=json.dumps(index, sort_keys=True).encode()))
        for digest, blob in blobs.items():
            info = tarfile.TarInfo(f"blobs/{digest.replace(':', '/')}")
            info.size, info.mtime = blob.size, EPOCH
            with blob.archive.open("rb") as handle:
                handle.seek(blob.offset)
                tar.addfile(info, handle)


def entries_of_tree(root: Path) -> Iterator[Entry]:
    """Every path below `root` as an entry; links are not followed, device nodes and sockets are left out."""
    seen: dict[tuple[int, int], str] = {}
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = Path(folder, name)
            relative = str(path.relative_to(root))
            status = path.lstat()
            owner = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
            if stat.S_ISLNK(status.st_mode):
                yield Entry(relative, EntryKind.SYMLINK, 0o777, *owner[1:], target=str(path.readlink()))
            elif stat.S_ISDIR(status.st_mode):
                yield Entry(relative, EntryKind.DIR, *owner)
            elif stat.S_ISREG(status.st_mode):
                first = seen.setdefault((status.st_dev, status.st_ino), relative)
                if first != relative:
                    yield Entry(relative, EntryKind.HARDLINK, *owner, target=first)
                else:
                    yield Entry(relative, EntryKind.FILE, *owner, content=path)


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file that replaces `target` when the block succeeds, and is removed when it fails."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with partial.open("wb") as handle:
            yield handle
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.path)
    info.type = _TYPES[entry.kind]
    info.mode, info.uid, info.gid, info.mtime = entry.mode, entry.uid, entry.gid, EPOCH
    info.linkname = entry.target
    if entry.kind is not EntryKind.FILE:
        tar.addfile(info)
    elif isinstance(entry.content, bytes):
        info.size = len(entry.content)
        tar.addfile(info, io.BytesIO(entry.content))
    else:
        with entry.content.open("rb") as handle:
            info.size = os.fstat(handle.fileno()).st_size
            tar.addfile(info, handle)
