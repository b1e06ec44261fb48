"""Folders that others may change, root of a node or another user: commands on the machine are not led out of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.work import bridge_network, volume_devices
from controlplane.host.work import payload
from controlplane.images.edge import registry
from controlplane.machine.edge import files
from controlplane.suites.work import conformance
from csi.edge import loops
from csi.settings import KUBELET, ROOT
from nodelib.errors import Invalid


def test_a_folder_is_made_and_a_link_in_its_place_is_removed(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for link in ("a", "b"):
        (tmp_path / "node" / link).symlink_to(tmp_path / ("elsewhere" if link == "a" else "nowhere"))
        with files.inside(str(tmp_path / "node"), f"{link}/deep") as folder:
            files.write(f"{folder}/file", "text")
        assert (tmp_path / "node" / link / "deep" / "file").read_text() == "text"
    assert os.listdir(tmp_path / "elsewhere") == [] and not (tmp_path / "nowhere").exists()


def test_what_is_no_folder_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("somebody's")
    with pytest.raises(NotADirectoryError), files.inside(str(tmp_path), "file/x"):
        pass
    assert (tmp_path / "file").read_text() == "somebody's"


def test_devices_are_only_detached_from_images_of_the_node_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes = tmp_path / "node1" / f"kubelet{ROOT.removeprefix(KUBELET)}" / "volumes"
    other = tmp_path / "node2" / "images"
    for folder in (volumes / "own", other / "vol"):
        folder.mkdir(parents=True)
        (folder / "disk.img").touch()
    (volumes / "vol").symlink_to(other / "vol")
    asked: list[str] = []

    def find(image: str) -> list[loops.Loop]:
        asked.append(image)
        return []

    monkeypatch.setattr(loops, "find", find)
    volume_devices.detach(str(tmp_path / "node1"))
    assert asked == [str(volumes / "own" / "disk.img")]


def test_a_plugin_is_not_copied_to_where_a_link_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster("lab", "10.89.3.0/24", Options(nodes=1), root=str(tmp_path / "state"))
    binaries = Path(cluster.node_dir("node1"), "cni/bin")
    for folder in (tmp_path / "plugins", binaries):
        folder.mkdir(parents=True)
    monkeypatch.setattr(bridge_network, "_SOURCE", str(tmp_path / "plugins"))
    for name in bridge_network._PLUGINS:
        (tmp_path / "plugins" / name).write_text("a program")
        (binaries / name).symlink_to(tmp_path / f"elsewhere-{name}")
    bridge_network.install(cluster, {"node1": "10.244.0.0/24"})
    assert list(tmp_path.glob("elsewhere-*")) == []
    assert all((binaries / name).read_text() == "a program" for name in bridge_network._PLUGINS)


async def test_mirrors_of_a_suite_are_not_written_to_where_a_link_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.asynccontextmanager
    async def serving(*_: object) -> AsyncIterator[int]:
        yield 5000

    monkeypatch.setattr(registry, "serving", serving)
    monkeypatch.setattr(registry, "catalogue", lambda _: None)
    cluster = Cluster("lab", "10.89.3.0/24", Options(nodes=1), root=str(tmp_path / "state"))
    folder, elsewhere = Path(cluster.node_dir("node1"), "etc-containerd"), tmp_path / "elsewhere"
    folder.mkdir(parents=True)
    elsewhere.mkdir()
    (folder / "certs.d").symlink_to(elsewhere)
    async with conformance.registry(cluster, {"image": tmp_path}):
        assert list(elsewhere.iterdir()) == []
        assert (folder / "certs.d" / "registry.k8s.io" / "hosts.toml").exists()
    assert not (folder / "certs.d" / "registry.k8s.io" / "hosts.toml").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to somebody")
def test_a_payload_is_not_written_into_the_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / payload._MARK).touch()
    os.chown(folder, 65534, 65534)
    monkeypatch.delenv("SUDO_UID", raising=False)
    with pytest.raises(Invalid, match="belongs to another user"):
        payload._claim(folder)
    monkeypatch.setenv("SUDO_UID", "65534")
    payload._claim(folder)
