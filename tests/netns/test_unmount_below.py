"""What `down` and `leave` unmount: what is below their folder, and nothing of the host, whoever bound it there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controlplane.machine.edge import namespaces
from nodelib import mounts
from tests.netns.mount_namespace import isolated

pytestmark = pytest.mark.netns


@isolated
def test_mounts_of_the_host_that_a_pod_bound_there_stay(tmp_path: Path) -> None:
    mounts.mount("node", str(tmp_path), "tmpfs")
    mounts.set_propagation(str(tmp_path), mounts.MS_SHARED)
    disk, inside, again = tmp_path / "host" / "disk", tmp_path / "kubelet" / "a b\té\\", tmp_path / "kubelet" / "other"
    for path in (disk, inside, again):
        path.mkdir(parents=True)
    mounts.mount("hostdisk", str(disk), "tmpfs")
    (disk / "precious").touch()
    for target in (inside, again):
        mounts.mount(str(tmp_path / "host"), str(target), "", mounts.MS_BIND | mounts.MS_REC)
    assert namespaces.unmount_below(str(tmp_path / "kubelet")) == 4
    assert (disk / "precious").exists()
    assert os.listdir(inside) == os.listdir(again) == []


@isolated
def test_a_busy_mount_is_detached(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    mounts.mount("busy", str(tmp_path / "d"), "tmpfs")
    with open(tmp_path / "d" / "f", "w", encoding="ascii"):
        assert namespaces.unmount_below(str(tmp_path)) == 1
    assert namespaces.unmount_below(str(tmp_path)) == 0
