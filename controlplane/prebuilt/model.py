"""What a release says of itself: release.json in the wheel nodewright-binaries. Facts only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FORMAT = 1
DISTRIBUTION = "nodewright-binaries"  # the wheel that lists the others, which its metadata requires
PACKAGE = "nodewright_binaries"  # its folder
MANIFEST = "release.json"


@dataclass(frozen=True, slots=True)
class Packed:
    """One xz file: `file` in the folder of the wheel `part`; size and digest of the compressed bytes."""

    part: str
    file: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Program:
    """An executable. `key` is the one of the cache (controlplane.binaries): it covers sources, flags and GOARCH."""

    name: str
    key: str
    size: int
    sha256: str
    packed: Packed


@dataclass(frozen=True, slots=True)
class Manifest:
    """`images`: the key of each image in `archive` (one OCI archive for all of them) by the image's name."""

    version: str
    commit: str
    kubernetes: str
    architecture: str
    programs: tuple[Program, ...]
    images: Mapping[str, str]
    archive: Packed | None

    def program(self, key: str, name: str) -> Program | None:
        return next((one for one in self.programs if (one.key, one.name) == (key, name)), None)
