"""What a node's containerd root shares with its seed, and what becomes of layers that it removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from controlplane.images.edge.clone import clone, keep_used
from controlplane.images.model.snapshots import SNAPSHOTS

_OWN = (
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
    "io.containerd.content.v1.content/blobs/sha256/1234",
)


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    made = tmp_path / "cache" / "seed"
    for name in (*_OWN, f"{SNAPSHOTS}/1/fs/bin/tool", f"{SNAPSHOTS}/1/fs/fs/1/fs/deep", f"{SNAPSHOTS}/12/fs/etc/x"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(name)
    for name in ("1", "12"):
        (made / SNAPSHOTS / name / "work").mkdir(mode=0o711)
    (made / SNAPSHOTS / "12/fs/link").symlink_to("etc/x")
    (made / SNAPSHOTS).chmod(0o700)
    return made


def files(root: Path) -> dict[str, str]:
    paths = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    return {str(path.relative_to(root)): path.read_text() for path in paths}


def inodes(root: Path) -> set[int]:
    return {os.lstat(Path(folder, name)).st_ino for folder, _, names in os.walk(root) for name in names}


def test_only_the_files_of_layers_are_shared_and_lie_outside_of_the_root(seed: Path, tmp_path: Path) -> None:
    root, layers = tmp_path / "node/containerd.new", tmp_path / "node/image-layers"
    clone(seed, root, layers)
    assert files(root) == {name: name for name in _OWN}
    assert not inodes(root) & inodes(seed)
    assert inodes(layers) <= inodes(seed)
    assert files(layers) == files(seed / SNAPSHOTS)
    assert (layers / "12/fs/link").is_symlink()
    folders = {str(path.relative_to(root / SNAPSHOTS)) for path in (root / SNAPSHOTS).rglob("*")}
    assert folders == {"1", "1/fs", "1/work", "12", "12/fs", "12/work"}, "where layers are mounted"
    assert (root / SNAPSHOTS).stat().st_mode & 0o777 == 0o700


def test_without_a_place_for_layers_all_are_copies(seed: Path, tmp_path: Path) -> None:
    root = tmp_path / "node/containerd"
    clone(seed, root, None)
    assert files(root) == files(seed) and not inodes(root) & inodes(seed)


@pytest.mark.skipif(
    not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat("/tmp").st_dev, reason="one file system"
)
def test_on_another_file_system_all_are_copies(seed: Path) -> None:
    folder = Path("/dev/shm", f"nodewright-clone-{os.getpid()}")
    try:
        clone(seed, folder / "containerd", folder / "image-layers")
        assert files(folder / "containerd") == files(seed) and not (folder / "image-layers").exists()
    finally:
        shutil.rmtree(folder)


def test_layers_whose_snapshots_are_gone_go_and_the_others_are_mounted(seed: Path, tmp_path: Path) -> None:
    root, layers = tmp_path / "node/containerd", tmp_path / "node/image-layers"
    clone(seed, root, layers)
    assert keep_used(layers, root) == ["1", "12"]
    (root / SNAPSHOTS / "12/work").rmdir()  # all that containerd can remove as long as fs is a mount
    assert keep_used(layers, root) == ["1"] and os.listdir(layers) == ["1"]
    assert files(seed / SNAPSHOTS / "12/fs"), "the seed has it for the next node"
    shutil.rmtree(root)
    assert keep_used(layers, root) == [] == os.listdir(layers)
    assert keep_used(tmp_path / "node/none", root) == []
