"""Archives are deterministic and say what the recipe says."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from controlplane.images.edge.archive import entries_of_tree, merge_archives, write_archive, write_layer
from controlplane.images.edge.layout import read_archive
from controlplane.images.edge.registry_tree import registry_entries
from controlplane.images.model.oci import RunConfig, directory, file, make_image, symlink
from nodelib.errors import Invalid

ENTRIES = (
    directory("tmp", 0o1777),
    file("usr/local/bin/nnp", b"\x7fELF", 0o6755),
    file("/etc/owner", "mine", uid=1000, gid=50000),
    symlink("agnhost-2", "agnhost"),
)


def build(folder: Path, entries: tuple[object, ...], *, compress: bool = False, name: str = "example.org/a:1") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    layer = write_layer(entries, folder / "layer", compress=compress)  # type: ignore[arg-type]
    run = RunConfig(entrypoint=("/a",), cmd=("b",), user="65535:65535", labels=(("x", "y"),))
    image = make_image([name], run, [layer], "amd64")
    write_archive(image, {layer.digest: folder / "layer"}, folder / "image.tar")
    return folder / "image.tar"


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
def test_the_same_entries_give_the_same_bytes_whatever_their_order(tmp_path: Path, compress: bool) -> None:
    first = build(tmp_path / "1", ENTRIES, compress=compress)
    second = build(tmp_path / "2", tuple(reversed(ENTRIES)), compress=compress)
    assert first.read_bytes() == second.read_bytes()


def test_times_and_names_of_the_building_machine_do_not_reach_the_layer(tmp_path: Path) -> None:
    for name, time in (("1", 1_000), ("2", 2_000_000_000)):
        tree = tmp_path / name / "tree"
        (tree / "etc").mkdir(parents=True)
        (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")
        import os

        os.utime(tree / "etc/hosts", (time, time))
    first, second = (
        write_layer(entries_of_tree(tmp_path / name / "tree"), tmp_path / name / "layer", compress=False)
        for name in ("1", "2")
    )
    assert first == second


def test_what_images_share_is_once_in_their_merged_archive(tmp_path: Path) -> None:
    names = [f"example.org/{name}:1" for name in ("a", "b")]
    single = [build(tmp_path / str(number), ENTRIES, name=name) for number, name in enumerate(names)]
    merge_archives(single, tmp_path / "all.tar")
    merged, layers = read_archive(tmp_path / "all.tar"), set()
    for path, name in zip(single, names, strict=True):
        alone = read_archive(path)
        assert merged.names[name] == alone.names[name]
        layers |= {one["digest"] for one in merged.document(merged.names[name]["digest"])["layers"]}
        assert all(merged.blobs[digest].read() == blob.read() for digest, blob in alone.blobs.items())
    assert len(layers) == 1
    with tarfile.open(tmp_path / "all.tar") as tar:
        assert len(tar.getnames()) == len(set(tar.getnames())) == len(merged.blobs) + 2


def test_modes_owners_and_links_survive(tmp_path: Path) -> None:
    write_layer(ENTRIES, tmp_path / "layer", compress=False)
    with tarfile.open(tmp_path / "layer") as tar:
        members = {member.name: member for member in tar}
    assert members["usr/local/bin/nnp"].mode == 0o6755
    assert (members["etc/owner"].uid, members["etc/owner"].gid) == (1000, 50000)
    assert members["tmp"].mode == 0o1777
    assert members["agnhost-2"].linkname == "agnhost"
    assert not any(member.uname or member.gname for member in members.values())


def test_a_tree_keeps_hard_links_and_symlinks_to_directories(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "bin").symlink_to("usr/bin")
    (tree / "usr/bin/a").write_text("a")
    (tree / "usr/bin/b").hardlink_to(tree / "usr/bin/a")
    write_layer(entries_of_tree(tree), tmp_path / "layer", compress=False)
    with tarfile.open(tmp_path / "layer") as tar:
        kinds = {member.name: (member.type, member.linkname) for member in tar}
    assert kinds["bin"] == (tarfile.SYMTYPE, "usr/bin")
    assert kinds["usr/bin/b"] == (tarfile.LNKTYPE, "usr/bin/a")


def test_the_last_entry_of_a_path_wins(tmp_path: Path) -> None:
    write_layer((file("etc/passwd", "old"), file("etc/passwd", "new")), tmp_path / "layer", compress=False)
    with tarfile.open(tmp_path / "layer") as tar:
        assert tar.extractfile("etc/passwd").read() == b"new"  # type: ignore[union-attr]
        assert len(tar.getnames()) == 1


def test_an_archive_reads_back(tmp_path: Path) -> None:
    archive = read_archive(build(tmp_path, ENTRIES))
    manifest = archive.document(archive.names["example.org/a:1"]["digest"])
    config = archive.document(manifest["config"]["digest"])
    assert config["config"] == {
        "Entrypoint": ["/a"],
        "Cmd": ["b"],
        "User": "65535:65535",
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "Labels": {"x": "y"},
    }
    layer = manifest["layers"][0]
    assert archive.blobs[layer["digest"]].size == layer["size"] == (tmp_path / "layer").stat().st_size
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "image.tar").write_text("nothing of the kind")
    with pytest.raises(Invalid, match="not a readable OCI archive"):
        read_archive(tmp_path / "image.tar")


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_layer((file("a", tmp_path / "missing"),), tmp_path / "out" / "layer", compress=False)
    assert list((tmp_path / "out").iterdir()) == []


def test_the_registry_tree_is_laid_out_as_fake_registry_server_reads_it(tmp_path: Path) -> None:
    archive = read_archive(build(tmp_path, ENTRIES))
    tree = {entry.path: entry.content for entry in registry_entries(archive, "pause", "testing")}
    index_digest = bytes(tree["var/registry/pause/manifests/testing"]).decode().strip()  # type: ignore[arg-type]
    value = index_digest.removeprefix("sha256:")
    assert f"var/registry/pause/manifests/sha256/{value[:2]}/{value}/data" in tree
    manifest = archive.document(next(iter(archive.names.values()))["digest"])
    for blob in (manifest["config"], *manifest["layers"]):
        value = blob["digest"].removeprefix("sha256:")
        assert f"var/registry/pause/blobs/sha256/{value[:2]}/{value}/data" in tree
