"""A release that was found: which programs and images this version takes from it, and where they are then."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.machine.edge.locks import cache_lock
from controlplane.prebuilt import edge, plan
from controlplane.prebuilt.model import DISTRIBUTION, Manifest
from nodelib.errors import Invalid

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Release:
    """What was found, and what it says of itself."""

    source: edge.Source
    manifest: Manifest

    def has(self, key: str, name: str) -> bool:
        return self.manifest.program(key, name) is not None

    def unpack(self, key: str, name: str, target: Path) -> None:
        """The program at `target`. Raises Invalid for a damaged release, KeyError for a program that it has not."""
        program = self.manifest.program(key, name)
        if program is None:
            raise KeyError(name)
        edge.unpack(self.source, program, target)


def find(folder: Path | None) -> Release | None:
    """The release in `folder` (its wheels), else the one that pip installed here, if there is one.

    Raises NotFound or Invalid for a folder without a release, and for one that is damaged.
    """
    source: edge.Source | None = edge.in_folder(folder) if folder else edge.installed()
    return Release(source, plan.parse(source.manifest(), source.origin)) if source else None


def refuse_unmatched(
    release: Release, wanted: Mapping[str, str], version: str, kubernetes: str, architecture: str
) -> None:
    """Raises Invalid when it does not have every program of `wanted` (key by name)."""
    missing = [name for name, key in wanted.items() if not release.has(key, name)]
    if why := plan.unmatched(release.manifest, version, kubernetes, architecture, missing):
        raise Invalid(
            f"does not fit nodewright {version}: {why}",
            obj=f"release {release.manifest.version} in {release.source.origin}",
            step="choose the programs",
            action=f"Take the release of this version (`pip install nodewright=={version} {DISTRIBUTION}=={version}`), "
            "or leave the release out: then they are built here from source.",
        )


def archives(
    wanted: Mapping[str, str], release: Release | None, cache_dir: Path, progress: Progress
) -> dict[str, Path]:
    """Compressed archives that hold images of `wanted` (key by name): those of the release, or what earlier runs took
    from one. Images that neither has are left out."""
    folder = cache_dir / "images" / "released"
    found: dict[str, Path] = {}
    for name, key in wanted.items():
        if archive := _known(folder, key):
            found[name] = archive
        elif release and release.manifest.archive and release.manifest.images.get(name) == key:
            found[name] = _taken(release, key, folder, progress)
    return found


def _known(folder: Path, key: str) -> Path | None:
    try:
        archive = folder / str(json.loads((folder / f"{key}.json").read_bytes())["archive"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return archive if archive.parent == folder and edge.is_whole(archive) else None


def _taken(release: Release, key: str, folder: Path, progress: Progress) -> Path:
    packed = release.manifest.archive
    assert packed is not None
    archive = folder / f"{packed.sha256[:16]}.tar.xz"
    with cache_lock(folder / ".lock", progress, "another run is taking images from a release"):
        if not (edge.is_whole(archive) and archive.exists()):
            edge.forget(archive)
            edge.copy(release.source, packed, archive)
        note = folder / f".{key}.json"
        note.write_text(json.dumps({"archive": archive.name}))
        note.rename(folder / f"{key}.json")
    return archive
