"""`nodewright release`: builds or takes from the cache what is published, and writes it into a folder."""

from __future__ import annotations

import os
import shutil
import tarfile
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from controlplane.binaries.model import TABLE, Binary
from controlplane.binaries.work import ensure, goarch, key_of
from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import Options
from controlplane.cluster.plan import components as cluster_components
from controlplane.host.plan.package import runtime_lock
from controlplane.host.work import package, payload
from controlplane.images.edge.archive import merge_archives
from controlplane.images.plan.image_names import AGNHOST_NAME, BUSYBOX_NAME, COREDNS_NAME, PAUSE_NAME
from controlplane.images.plan.known import BY_NAME
from controlplane.images.work import binaries_for, ensure_images, identities
from controlplane.machine.edge import files
from controlplane.prebuilt import plan as prebuilt_plan
from controlplane.prebuilt.model import MANIFEST, PACKAGE, Manifest, Packed, Program
from controlplane.progress import Progress, Say
from controlplane.release import parts
from controlplane.release.edge import archives
from controlplane.release.model import Entry
from controlplane.release.plan import sbom, wheel
from nodelib.command import run_sync
from nodelib.errors import Invalid
from nodelib.version import KUBERNETES_VERSION

SUMS = "SHA256SUMS"
# AGNHOST holds CoreDNS too: xz finds the second copy when it is near the first.
IMAGES = (PAUSE_NAME, BUSYBOX_NAME, AGNHOST_NAME, COREDNS_NAME)
PYTHONS = ("3.11", "3.12", "3.13")  # Debian 12, Ubuntu 24.04, Debian 13
_IMAGES_FILE = "images.tar.xz"
_SOURCES = ("controlplane", "requirements.lock", "pyproject.toml")  # they decide what the programs are


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be made: from which tree, and with which Python the packages are fetched."""

    folder: Path
    project: Path
    python: str


@dataclass(frozen=True, slots=True)
class _Commit:
    id: str
    time: int  # seconds since the epoch
    tree: Mapping[str, bytes]
    settings: Mapping[str, Any]

    @property
    def version(self) -> str:
        return str(self.settings["project"]["version"])


def write(order: Order, progress: Progress) -> list[Path]:
    """Make the release and return its files. Blocking: minutes, if programs and images are built already.

    Raises Invalid for a folder with other contents or a tree with changes, CommandError when git, pip or Go fails.
    """
    _check(order)
    work = Path(cache_root(), "release")
    work.mkdir(parents=True, exist_ok=True)
    with progress.step("project") as say:
        commit = _commit(order.project, work)
        say(f"{commit.version}, commit {commit.id[:12]}")
    stage = work / f"stage-{os.getpid()}"
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir()
    try:
        _write_all(stage, order, commit, work, progress)
        return publish(stage, order.folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _write_all(stage: Path, order: Order, commit: _Commit, work: Path, progress: Progress) -> None:
    with progress.step("programs and images") as say:
        programs, images = _built(say)
    with progress.step("compressed") as say:
        packed = _packed(programs, images, work)
        say(f"{sum(path.stat().st_size for path in packed.values()) / 1e6:.0f} MB")
    with progress.step("Python packages") as say:
        lock = work / "runtime.lock"
        text = runtime_lock(
            (order.project / "requirements.lock").read_text(), commit.settings["project"]["dependencies"]
        )
        lock.write_text(text)
        fetched = parts.python_wheels(lock, PYTHONS, work, order.python)
        for path in fetched:
            shutil.copyfile(path, stage / path.name)
        say(f"{len(fetched)} wheels")
    with progress.step("parts and licences") as say:
        found = parts.collect(programs, images, fetched, Path(cache_root()), say)
        stamp = f"{datetime.fromtimestamp(commit.time, UTC):%Y-%m-%dT%H:%M:%SZ}"
        listed = sbom.document(commit.version, commit.id, stamp, found.components)
        (stage / f"nodewright-{commit.version}.cdx.json").write_text(listed)
        say(f"{len(sbom.merged(found.components))} parts")
    with progress.step("wheels"):
        _write_code(stage, commit)
        _write_parts(stage, commit, programs, packed, found)
    package.write(stage, order.project, order.python, progress)


def _check(order: Order) -> None:
    folder = order.folder
    files.refuse_of_others(folder, "release")
    if folder.exists() and not folder.is_dir():
        raise Invalid("is not a directory", obj=str(folder), step="release", action="Name a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / SUMS).is_file():
        raise Invalid(
            "is not empty and no release", obj=str(folder), step="release", action="Name an empty folder, or a new one."
        )
    changed = run_sync(["git", "-C", str(order.project), "status", "--porcelain", "--", *_SOURCES]).text
    if changed:
        raise Invalid(
            f"has changes that are not committed: {', '.join(line[3:] for line in changed.splitlines()[:5])}",
            obj=str(order.project),
            step="release",
            action="Commit them: a release is made of a commit.",
        )


def _commit(project: Path, work: Path) -> _Commit:
    line = run_sync(["git", "-C", str(project), "log", "-1", "--format=%H %ct"]).text.split()
    payload.archive_project(work / "project.tar", project)
    tree: dict[str, bytes] = {}
    with tarfile.open(work / "project.tar") as archive:
        for member in archive:
            if member.isfile() and (file := archive.extractfile(member)):
                tree[member.name] = file.read()
    return _Commit(line[0], int(line[1]), tree, tomllib.loads(tree["pyproject.toml"].decode()))


def _built(say: Say) -> tuple[dict[str, tuple[Binary, Path]], dict[str, Path]]:
    """Each program with its file, without aliases, and the archive of each image."""
    cache = Path(cache_root())
    names = cluster_components.needed(Options())
    binaries = ensure((*names, *binaries_for(IMAGES, BY_NAME)), cache_dir=cache, progress=say)
    images = ensure_images(IMAGES, cache_dir=cache, binaries=binaries, progress=say, recipes=BY_NAME)
    unique = {TABLE[name].name: TABLE[name] for name in names}
    return {name: (one, binaries.path(_asked(one, names)).resolve()) for name, one in unique.items()}, images


def _asked(binary: Binary, names: tuple[str, ...]) -> str:
    return next(name for name in (binary.name, *binary.aliases) if name in names)


def _packed(programs: Mapping[str, tuple[Binary, Path]], images: Mapping[str, Path], work: Path) -> dict[str, Path]:
    """The compressed file of each program, and of the archive with all images."""
    together = work / f"images-{os.getpid()}.tar"
    jobs = {_IMAGES_FILE: together, **{f"{name}.xz": path for name, (_, path) in programs.items()}}
    try:
        merge_archives([images[name] for name in IMAGES], together)
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            made = pool.map(
                lambda name: archives.compressed(jobs[name], work, program=name != _IMAGES_FILE),
                jobs,
            )
            return dict(zip(jobs, made, strict=True))
    finally:
        together.unlink(missing_ok=True)


def _write_code(stage: Path, commit: _Commit) -> None:
    project = commit.settings["project"]
    name, version = project["name"], commit.version
    entries = [Entry(path, commit.tree[path]) for path in wheel.packaged(commit.tree, commit.settings)]
    metadata = wheel.code_metadata(project, commit.tree["README.md"].decode())
    more = {"entry_points.txt": wheel.entry_points(project), "licenses/LICENSE": commit.tree["LICENSE"].decode()}
    files = wheel.complete(name, version, wheel.PURE, entries, metadata, more)
    record = f"{wheel.info_folder(name, version)}/RECORD"
    archives.write_wheel(stage / wheel.file_name(name, version, wheel.PURE), files, record, commit.time)


def _write_parts(
    stage: Path,
    commit: _Commit,
    programs: Mapping[str, tuple[Binary, Path]],
    packed: Mapping[str, Path],
    found: parts.Found,
) -> None:
    """Write the wheels with programs and images; the first has the list of all and requires the others."""
    groups = wheel.split({name: path.stat().st_size for name, path in packed.items()})
    names = wheel.parts(len(groups))
    place = {file: wheel.escaped(name) for name, group in zip(names, groups, strict=True) for file in group}
    listed = _manifest(commit, programs, packed, place)
    tag, python = wheel.platform_tag(goarch()), commit.settings["project"]["requires-python"]
    more = {f"licenses/{name}": text for name, text in found.notices.items()}
    more["licenses/LICENSE"] = commit.tree["LICENSE"].decode()
    for name, group in zip(names, groups, strict=True):
        folder = wheel.escaped(name)
        entries = [Entry(f"{folder}/{file}", packed[file], stored=True) for file in group]
        if folder == PACKAGE:
            entries.append(Entry(f"{folder}/{MANIFEST}", prebuilt_plan.text(listed).encode()))
        others = names[1:] if folder == PACKAGE else ()
        metadata = wheel.part_metadata(name, commit.version, others, python)
        files = wheel.complete(name, commit.version, tag, entries, metadata, more)
        record = f"{wheel.info_folder(name, commit.version)}/RECORD"
        archives.write_wheel(stage / wheel.file_name(name, commit.version, tag), files, record, commit.time)


def _manifest(
    commit: _Commit,
    programs: Mapping[str, tuple[Binary, Path]],
    packed: Mapping[str, Path],
    place: Mapping[str, str],
) -> Manifest:
    def described(file: str) -> Packed:
        return Packed(place[file], file, packed[file].stat().st_size, archives.digest_of(packed[file]))

    return Manifest(
        version=commit.version,
        commit=commit.id,
        kubernetes=KUBERNETES_VERSION,
        architecture=goarch(),
        programs=tuple(
            Program(name, key_of(one), path.stat().st_size, archives.digest_of(path), described(f"{name}.xz"))
            for name, (one, path) in programs.items()
        ),
        images=identities(IMAGES, BY_NAME),
        archive=described(_IMAGES_FILE),
    )


def publish(stage: Path, folder: Path) -> list[Path]:
    """Move everything into the folder, in place of an earlier release, and write the checksums last."""
    folder.mkdir(parents=True, exist_ok=True)
    for line in (folder / SUMS).read_text().splitlines() if (folder / SUMS).exists() else ():
        name = line.partition("  ")[2]
        if name and "/" not in name:
            (folder / name).unlink(missing_ok=True)
    (folder / SUMS).unlink(missing_ok=True)
    names = sorted(path.name for path in stage.iterdir())
    for name in names:
        shutil.move(stage / name, folder / name)
        (folder / name).chmod(0o644)
    lines = (f"{archives.digest_of(folder / name)}  {name}\n" for name in names)
    files.write(str(folder / SUMS), "".join(lines), 0o644)
    return [folder / name for name in (*names, SUMS)]
