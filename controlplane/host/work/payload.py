"""Writes a folder with all that a machine without internet access needs to become a node.

It holds the project, its Python packages, binaries and images, and can be copied by disk, rsync or scp;
vagrant/provision/ shows what to do with it on the other side.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from controlplane.binaries.work import ensure
from controlplane.cluster.edge.roots import cache_root
from controlplane.images.edge.archive import merge_archives
from controlplane.images.plan.image_names import BUSYBOX_NAME, COREDNS_NAME, ETCD_NAME, PAUSE_NAME
from controlplane.images.plan.kubeadm_recipes import component_images
from controlplane.images.work import binaries_for, ensure_images
from controlplane.machine.edge.files import refuse_of_others
from controlplane.progress import Progress
from nodelib.command import run_sync
from nodelib.errors import Invalid

# The images of every node, with a small one for tests (unpacking the demo's big one takes minutes on an emulated
# machine), and those of kubeadm's control plane: they share one binary, so a common archive is a third of the size.
ARCHIVES = {
    "node": (PAUSE_NAME, COREDNS_NAME, BUSYBOX_NAME),
    "control-plane": (ETCD_NAME, *component_images()),
}
IMAGES = tuple(name for names in ARCHIVES.values() for name in names)
BINARIES = ("containerd", "containerd-shim-runc-v2", "ctr", "kubectl", "kubeadm")
_MARK = ".nodewright-payload"
_PIP_TIMEOUT = 900.0


def write(folder: Path, project: Path, python: str, binaries_dir: Path | None, progress: Progress) -> None:
    """Write or update `folder`; what is current is not written again.

    Blocking. Raises Invalid for a folder with other contents, CommandError when git, pip or a build fails.
    """
    _claim(folder)
    with progress.step("project") as say:
        say(archive_project(folder / "project.tar", project))
    with progress.step("Python packages") as say:
        say(install_packages(folder / "site", project / "requirements.lock", python))
    with progress.step("binaries and images") as say:
        names = (*BINARIES, *binaries_for(IMAGES))
        built = ensure(names, cache_dir=Path(cache_root()), progress=say, binaries_dir=binaries_dir)
        images = ensure_images(IMAGES, cache_dir=Path(cache_root()), binaries=built, progress=say)
        copied = _copy(folder / "bin", {name: built.path(name) for name in BINARIES})
        copied += _images(folder / "images", images)
        say(f"{copied} copied")


def _claim(folder: Path) -> None:
    """Check that the folder is ours, as outdated files in it are deleted."""
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise Invalid(
            "is not empty and no payload", obj=str(folder), step="write the payload", action="Name an empty folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    refuse_of_others(folder, "write the payload")
    (folder / _MARK).touch()


def archive_project(archive: Path, project: Path) -> str:
    """Write the committed tree, without local changes. Raises CommandError."""
    commit = run_sync(["git", "-C", str(project), "rev-parse", "HEAD"]).text.strip()
    mark = archive.with_suffix(".commit")
    if archive.exists() and mark.exists() and mark.read_text() == commit:
        return f"{commit[:12]}, there"
    run_sync(["git", "-C", str(project), "archive", "--format=tar", f"--output={archive}", commit])
    mark.write_text(commit)
    return commit[:12]


def install_packages(folder: Path, lock: Path, python: str) -> str:
    """Install the packages of the lock file, for this machine's processor and minor version of Python.

    Raises CommandError.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    key = f"{version} {hashlib.sha256(lock.read_bytes()).hexdigest()}"
    mark = folder / "python-version"
    if mark.exists() and mark.read_text() == key:
        return f"for Python {version}, there"
    shutil.rmtree(folder, ignore_errors=True)
    pip = [python, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet", "--no-deps"]
    wanted = ["--require-hashes", "--only-binary=:all:", f"--target={folder}", f"--requirement={lock}"]
    run_sync([*pip, *wanted], timeout=_PIP_TIMEOUT)
    mark.write_text(key)
    return f"for Python {version}"


def _images(folder: Path, built: Mapping[str, Path]) -> int:
    """Write ARCHIVES. Returns how many are new.

    Their names follow from their contents, so that machines recognize what they have imported.
    """
    folder.mkdir(exist_ok=True)
    wanted: dict[str, list[Path]] = {}
    for name, images in ARCHIVES.items():
        sources = [built[image] for image in images]
        key = hashlib.sha256(" ".join(path.parent.name for path in sources).encode()).hexdigest()[:8]
        wanted[f"{name}-{key}.tar"] = sources
    for surplus in _surplus(folder, wanted):
        (folder / surplus).unlink()
    missing = [name for name in wanted if not (folder / name).exists()]
    for name in missing:
        merge_archives(wanted[name], folder / name)
    return len(missing)


def _copy(folder: Path, wanted: Mapping[str, Path]) -> int:
    """Copy files, by hard link on the same file system. Returns how many were not there."""
    folder.mkdir(exist_ok=True)
    for name in _surplus(folder, wanted):
        (folder / name).unlink()
    copied = 0
    for name, source in wanted.items():
        target = folder / name
        if target.exists() and _same(target, source):
            continue
        target.unlink(missing_ok=True)
        try:
            os.link(source.resolve(), target)
        except OSError:  # another file system, or one without hard links
            shutil.copy2(source, target)
        copied += 1
    return copied


def _surplus(folder: Path, wanted: Collection[str]) -> Sequence[str]:
    return [entry.name for entry in folder.iterdir() if entry.name not in wanted]


def _same(target: Path, source: Path) -> bool:
    ours, theirs = target.stat(), source.stat()
    return ours.st_size == theirs.st_size and int(ours.st_mtime) == int(theirs.st_mtime)
