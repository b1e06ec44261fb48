"""Programs out of a release: taken when they match, checked before they are there, unpacked again when they broke."""

from __future__ import annotations

import lzma
import os
import stat
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.binaries.model import TABLE
from controlplane.binaries.work import ensure, goarch, key_of
from controlplane.prebuilt import edge, plan
from controlplane.prebuilt.model import Packed
from controlplane.prebuilt.work import Release, archives, find, refuse_unmatched
from nodelib.errors import Invalid, NodewrightError, NotFound
from nodelib.version import KUBERNETES_VERSION
from tests.unit.controlplane.prebuilt.releases import CONTENT, NEEDED, VERSION, manifest, packed, write


def release(folder: Path) -> Release:
    found = find(folder)
    assert found is not None
    return found


def quiet(line: str) -> None:
    pass


def test_programs_of_a_release_are_unpacked_instead_of_built(tmp_path: Path) -> None:
    write(tmp_path / "dist", manifest(*NEEDED))
    said: list[str] = []
    found = ensure(
        ["etcd", "kubectl"], cache_dir=tmp_path / "cache", progress=said.append, prebuilt=release(tmp_path / "dist")
    )
    assert said == [f"unpacking 2 programs of release {VERSION}"]
    kubectl = found.path("kubectl")
    assert kubectl.read_bytes() == CONTENT and stat.S_IMODE(kubectl.stat().st_mode) == 0o755
    assert kubectl.parent.name == key_of(TABLE["kubectl"]), "where the cache has built ones, too"
    assert found.path("etcd").readlink() == Path("nodewright-controlplane")
    said.clear()
    assert ensure(["etcd", "kubectl"], cache_dir=tmp_path / "cache", progress=said.append).paths == found.paths
    assert said == [], "later runs need no release"


def truncated(program: Path) -> None:
    with program.open("r+b") as file:
        file.truncate(100)


def altered(program: Path) -> None:
    with program.open("r+b") as file:
        file.write(b"#!/bin/rm")
    os.utime(program, (1, 1))


def removed(program: Path) -> None:
    program.unlink()


@pytest.mark.parametrize("broken", [truncated, altered, removed])
def test_a_program_that_broke_is_unpacked_again(tmp_path: Path, broken: Callable[[Path], None]) -> None:
    write(tmp_path / "dist", manifest(*NEEDED))
    prebuilt = release(tmp_path / "dist")
    program = ensure(["kubectl"], cache_dir=tmp_path / "cache", prebuilt=prebuilt).path("kubectl")
    with program.open("rb") as running:
        broken(program)
        again = ensure(["kubectl"], cache_dir=tmp_path / "cache", prebuilt=prebuilt).path("kubectl")
        assert again == program and again.read_bytes() == CONTENT
        assert running.fileno() and os.fstat(running.fileno()).st_ino != again.stat().st_ino, "never in place"


def test_what_a_killed_run_left_does_no_harm(tmp_path: Path) -> None:
    write(tmp_path / "dist", manifest(*NEEDED))
    folder = tmp_path / "cache" / "bin" / key_of(TABLE["kubectl"])
    folder.mkdir(parents=True)
    (folder / f".kubectl.{os.getpid()}").write_bytes(b"half")
    (folder / ".kubectl.digest").write_text("{")
    found = ensure(["kubectl"], cache_dir=tmp_path / "cache", prebuilt=release(tmp_path / "dist"))
    assert found.path("kubectl").read_bytes() == CONTENT
    assert sorted(path.name for path in folder.iterdir()) == [".kubectl.digest", ".kubectl.lock", "kubectl"]


def refused(tmp_path: Path, xz: bytes) -> str:
    """What is said against a release with these bytes; nothing of it may be in the cache."""
    write(tmp_path / "dist", manifest("kubectl"), xz)
    with pytest.raises(Invalid) as found:
        ensure(["kubectl"], cache_dir=tmp_path / "cache", prebuilt=release(tmp_path / "dist"))
    assert "release again" in found.value.action
    left = [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.stat().st_size]
    assert left == []
    return found.value.message


def test_a_program_with_another_digest_is_refused(tmp_path: Path) -> None:
    other = CONTENT.replace(b"hello", b"HELLO")
    assert refused(tmp_path, xz=lzma.compress(other)) == "damaged: its digest is not that of the release"


def test_a_program_larger_than_said_is_refused_before_the_disk_is_full(tmp_path: Path) -> None:
    bomb = lzma.compress(bytes(300 << 20), preset=0)
    assert len(bomb) < 1 << 20
    assert refused(tmp_path, xz=bomb) == "damaged: its digest is not that of the release"


def test_a_program_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, xz=lzma.compress(CONTENT)[:-40]) == "damaged: it ends too early"
    assert "damaged" in refused(tmp_path, xz=b"no xz at all")


def test_a_program_that_needs_too_much_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}]
    assert "emory" in refused(tmp_path, xz=lzma.compress(CONTENT, filters=filters))


def test_a_list_that_is_not_what_the_wheel_recorded_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, manifest("kubectl"))
    with zipfile.ZipFile(path) as wheel:
        content = {name: wheel.read(name) for name in wheel.namelist()}
    content["nodewright_binaries/release.json"] += b" "
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in content.items():
            wheel.writestr(name, data)
    with pytest.raises(Invalid, match=r"release\.json is not what RECORD says"):
        find(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"format": 2}',
        '{"format": 1}',
        plan.text(manifest("kubectl")).replace('"kubectl"', '"../kubectl"'),
        plan.text(manifest("kubectl")).replace('"kubectl.xz"', '"../../etc/shadow"'),
        plan.text(manifest("kubectl")).replace('"nodewright_binaries"', '"/etc"'),
        plan.text(manifest("kubectl")).replace(f'"size": {len(CONTENT)}', '"size": 1e300'),
        plan.text(manifest("kubectl")).replace(f'"size": {len(CONTENT)}', '"size": true'),
        " " * (plan.LARGEST + 1),
    ],
)
def test_a_hostile_list_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"release\.json cannot be used"):
        plan.parse(text.encode(), "here")


def test_a_list_is_read_as_it_was_written() -> None:
    listed = replace(manifest(*NEEDED), images={"registry.k8s.io/pause:3.10.2": "abc"}, archive=packed_archive())
    assert plan.parse(plan.text(listed).encode(), "here") == listed


def packed_archive() -> Packed:
    return packed("nodewright_binaries_2", "images.tar.xz", b"xyz")


@pytest.mark.parametrize("make", [lambda path: None, lambda path: (path / "x.whl").touch()])
def test_a_folder_without_a_release_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path)
    with pytest.raises(NotFound, match="no nodewright_binaries-"):
        find(tmp_path)


def test_two_versions_in_one_folder_are_refused(tmp_path: Path) -> None:
    write(tmp_path, manifest("kubectl"))
    write(tmp_path, manifest("kubectl", version="9.9.8"))
    with pytest.raises(Invalid, match="are both there"):
        find(tmp_path)


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    listed = manifest("kubectl")
    program = replace(listed.programs[0], packed=replace(listed.programs[0].packed, part="nodewright_binaries_2"))
    write(tmp_path, replace(listed, programs=(program,)))
    with pytest.raises(NotFound, match="the wheel nodewright_binaries_2 is missing"):
        ensure(["kubectl"], cache_dir=tmp_path / "cache", prebuilt=release(tmp_path))


def test_a_release_that_does_not_fit_is_refused_with_what_to_do(tmp_path: Path) -> None:
    write(tmp_path, manifest("kubectl"))
    keys = {name: key_of(TABLE[name]) for name in NEEDED}
    fits = replace(release(tmp_path), manifest=manifest(*NEEDED))
    refuse_unmatched(fits, keys, "1.0", KUBERNETES_VERSION, goarch())
    for found, why in (
        (
            release(tmp_path),
            "whose containerd, .*, nodewright-controlplane, runc are not those",
        ),
        (replace(fits, manifest=replace(fits.manifest, kubernetes="v1.30.0")), "it has Kubernetes v1.30.0"),
        (replace(fits, manifest=replace(fits.manifest, architecture="s390x")), "it is for s390x"),
    ):
        with pytest.raises(NodewrightError, match=why) as refusal:
            refuse_unmatched(found, keys, "1.0", KUBERNETES_VERSION, goarch())
        assert "nodewright-binaries==1.0" in refusal.value.action


def with_images(folder: Path, content: bytes) -> Release:
    """A release whose archive of images is that content."""
    listed = manifest("kubectl")
    program = replace(listed.programs[0], packed=packed("nodewright_binaries", "kubectl.xz", content))
    archive = packed("nodewright_binaries", "kubectl.xz", content)
    write(folder, replace(listed, programs=(program,), images={"a": "key-a", "b": "key-b"}, archive=archive), content)
    return release(folder)


def test_images_come_from_a_release_and_are_remembered(tmp_path: Path) -> None:
    content = lzma.compress(b"an archive")
    found = archives({"a": "key-a", "b": "other"}, with_images(tmp_path / "dist", content), tmp_path, quiet)
    assert list(found) == ["a"] and found["a"].read_bytes() == content
    assert archives({"a": "key-a", "c": "key-b"}, None, tmp_path, quiet) == found
    assert archives({"a": "key-a2"}, None, tmp_path, quiet) == {}
    found["a"].write_bytes(b"broken")
    assert archives({"a": "key-a"}, None, tmp_path, quiet) == {}
    again = archives({"a": "key-a"}, with_images(tmp_path / "dist2", content), tmp_path, quiet)
    assert again["a"].read_bytes() == content


def test_images_with_another_digest_are_refused(tmp_path: Path) -> None:
    good = with_images(tmp_path / "dist", lzma.compress(b"an archive"))
    bad = with_images(tmp_path / "bad", lzma.compress(b"another"))
    with pytest.raises(Invalid, match="digest"):
        archives({"a": "key-a"}, replace(bad, manifest=good.manifest), tmp_path / "cache", quiet)
    assert list((tmp_path / "cache").rglob("*.xz")) == []


def test_what_pip_installed_is_used_where_it_lies(tmp_path: Path) -> None:
    content = lzma.compress(b"an archive")
    made = with_images(tmp_path / "dist", content)
    with zipfile.ZipFile(next((tmp_path / "dist").glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
        record = wheel.read(next(name for name in wheel.namelist() if name.endswith("RECORD"))).decode()
    source = edge.Installed({"nodewright_binaries": tmp_path / "site" / "nodewright_binaries"}, record)
    installed = Release(source, plan.parse(source.manifest(), source.origin))
    assert installed.manifest == made.manifest
    archive = archives({"a": "key-a"}, installed, tmp_path / "cache", quiet)["a"]
    assert archive.readlink() == tmp_path / "site" / "nodewright_binaries" / "kubectl.xz", "no second copy"
    (tmp_path / "site" / "nodewright_binaries" / "release.json").write_text("{}")
    with pytest.raises(Invalid, match="RECORD"):
        source.manifest()
