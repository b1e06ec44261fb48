"""Reads OCI archives in place: which names and blobs they hold, and at which offsets."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from nodelib.errors import Invalid


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob inside an uncompressed archive: `size` bytes at `offset` of the file `archive`."""

    archive: Path
    offset: int
    size: int

    def read(self) -> bytes:
        with self.archive.open("rb") as handle:
            handle.seek(self.offset)
            return handle.read(self.size)


@dataclass(frozen=True, slots=True)
class Archive:
    """The content of one OCI image archive: `names` maps a full reference to its manifest's descriptor."""

    path: Path
    blobs: Mapping[str, Blob]
    names: Mapping[str, dict[str, Any]]

    def document(self, digest: str) -> dict[str, Any]:
        """A JSON blob. Raises KeyError when it is not in the archive."""
        return cast(dict[str, Any], json.loads(self.blobs[digest].read()))


def read_archive(path: Path) -> Archive:
    """Reads only the tar's headers and index.json. Raises Invalid for a file that is no OCI archive."""
    blobs: dict[str, Blob] = {}
    index: dict[str, Any] = {}
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                if member.name.startswith("blobs/"):
                    digest = member.name.removeprefix("blobs/").replace("/", ":")
                    blobs[digest] = Blob(path, member.offset_data, member.size)
                elif member.name == "index.json":
                    index = json.loads(Blob(path, member.offset_data, member.size).read())
    except (tarfile.TarError, ValueError, OSError) as error:
        raise Invalid(
            f"not a readable OCI archive: {error}", obj=str(path), action="Remove it; it is built again"
        ) from error
    names = {
        manifest.get("annotations", {}).get("io.containerd.image.name", ""): manifest
        for manifest in index.get("manifests", [])
    }
    return Archive(path, blobs, {name: manifest for name, manifest in names.items() if name})
