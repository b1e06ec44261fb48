"""The table of binaries, cache keys, and what ensure() does without building."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.binaries.model import BINARIES, TABLE, cache_key, of_release
from controlplane.binaries.work import MODULES, all_there, ensure, goarch, module_files
from nodelib.errors import NotFound

FILES = [("go.mod", b"module x"), ("go.sum", b"h1:")]


def test_aliases_lead_to_the_multi_call_binary() -> None:
    names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    assert {TABLE[name].name for name in names} == {"nodewright-controlplane"}


def test_every_module_is_there() -> None:
    for binary in BINARIES:
        assert (MODULES / binary.module / "go.mod").is_file(), binary.name


def test_the_kubernetes_version_is_stamped_for_components_and_clients() -> None:
    flags = " ".join(TABLE["kubectl"].ldflags)
    assert "-X k8s.io/component-base/version.gitVersion=v1.37.1" in flags
    assert "-X k8s.io/component-base/version.gitMinor=37" in flags
    assert "-X k8s.io/client-go/pkg/version.gitVersion=v1.37.1" in flags


def test_another_release_is_another_control_plane_and_nothing_else() -> None:
    older = of_release("1.36")
    assert {name for name in older if older[name] is not TABLE.get(name)} == {
        *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
        "nodewright-controlplane-1.36",
    }
    assert (MODULES / older["etcd"].module / "go.mod").is_file()
    assert "gitVersion=v1.36.3" in " ".join(older["kube-apiserver"].ldflags)
    assert of_release("") is of_release("1.37") is TABLE
    names = {name for name, _ in module_files("kube-1.36")}
    assert names == {"go.mod", "go.sum", "nodewright-controlplane/main.go"}


@pytest.mark.parametrize(
    ("changed", "files", "arch"),
    [
        ({"ldflags": ("-s",)}, FILES, "amd64"),
        ({"tags": ("x",)}, FILES, "amd64"),
        ({"c": True}, FILES, "amd64"),
        ({}, [("go.mod", b"module y"), FILES[1]], "amd64"),
        ({}, FILES, "arm64"),
    ],
    ids=["ldflags", "tags", "C", "go.mod", "architecture"],
)
def test_the_key_changes_with_what_decides_the_bytes(
    changed: dict[str, tuple[str, ...] | bool], files: list[tuple[str, bytes]], arch: str
) -> None:
    binary = TABLE["kubectl"]
    assert cache_key(replace(binary, **changed), files, arch) != cache_key(binary, FILES, "amd64")  # type: ignore[arg-type]


def test_containerd_and_its_shim_share_a_folder() -> None:
    keys = {cache_key(TABLE[name], FILES, "amd64") for name in ("containerd", "containerd-shim-runc-v2", "ctr")}
    assert len(keys) == 1


def test_ready_binaries_are_taken_first(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "kubectl").write_text("#!/bin/sh\n")
    (given / "kubectl").chmod(0o755)
    found = ensure(["kubectl"], cache_dir=tmp_path / "cache", binaries_dir=given)
    assert found.path("kubectl") == given / "kubectl"
    with pytest.raises(NotFound, match="kubelet"):
        found.path("kubelet")


def test_what_is_cached_is_not_built(tmp_path: Path) -> None:
    folder = tmp_path / "bin" / cache_key(TABLE["etcd"], module_files("cluster"), goarch())
    assert not all_there(["etcd"], cache_dir=tmp_path)
    folder.mkdir(parents=True)
    (folder / "nodewright-controlplane").touch()
    (folder / "etcd").symlink_to("nodewright-controlplane")
    assert all_there(["etcd"], cache_dir=tmp_path)
    assert not all_there(["etcd", "kubectl"], cache_dir=tmp_path)
    said: list[str] = []
    assert ensure(["etcd"], cache_dir=tmp_path, progress=said.append).path("etcd") == folder / "etcd"
    assert said == []


def test_an_unknown_binary_is_named_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"kubeletd.*Known: .*kubelet"):
        ensure(["kubeletd"], cache_dir=tmp_path)
