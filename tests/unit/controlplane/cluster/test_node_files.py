"""A node's mounts, name resolution, and who may read its files."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan import node_files

CLUSTER = Cluster("lab", "10.89.3.0/24", Options(nodes=2))
NODE = CLUSTER.nodes[1]


@pytest.mark.parametrize(
    ("host", "resolved", "uplink", "expected"),
    [
        pytest.param("nameserver 9.9.9.9\nsearch x\n", "", True, "nameserver 9.9.9.9\nsearch x\n", id="plain"),
        pytest.param("nameserver 127.0.0.53\n", "nameserver 1.1.1.1\n", True, "nameserver 1.1.1.1\n", id="resolved"),
        pytest.param(
            "nameserver 127.0.0.1\nnameserver 9.9.9.9\n", "", True, "nameserver 9.9.9.9\n", id="loopback left out"
        ),
    ],
)
def test_resolv_conf(host: str, resolved: str, uplink: bool, expected: str) -> None:
    assert node_files.resolv_conf(host, resolved, uplink) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "nameserver 9.9.9.9\nsearch x\nnameserver\t2620:fe::9\n", ("9.9.9.9", "2620:fe::9"), id="both families"
        ),
        pytest.param("# nameserver 9.9.9.9\nnameserver\nnameserver dns.example {\n", (), id="no address"),
        pytest.param("nameserver fe80::1%eth0\n", (), id="of one link"),
        pytest.param("", (), id="empty"),
    ],
)
def test_name_servers(text: str, expected: tuple[str, ...]) -> None:
    assert node_files.name_servers(text) == expected


@pytest.mark.parametrize("uplink", [True, False])
def test_no_server_that_can_be_reached_is_a_comment(uplink: bool) -> None:
    text = node_files.resolv_conf("nameserver 127.0.0.53\n", "", uplink)
    assert all(line.startswith("#") for line in text.splitlines())


def test_configuration_of_the_daemons_is_for_root_only() -> None:
    """CIS 4.1.9; what pods read (hosts, resolv.conf) is not."""
    assert {node_files.mode(name) for name in ("kubernetes/kubelet.yaml", "kubernetes/proxy.yaml")} == {0o600}
    assert {node_files.mode(name) for name in ("hosts", "hostname", "etc-containerd/config.toml")} == {0o644}


def mounts(*layers: str) -> list[dict[str, Any]]:
    readonly = ["/cache", "/project"]
    spec = node_files.machine(CLUSTER, NODE, ["/sys/fs/cgroup/x"], readonly, "/venv/python", "/project", layers)
    found: list[dict[str, Any]] = spec["machine"]["root"]["mounts"]
    return found


def test_every_daemon_path_is_mounted() -> None:
    targets = {entry["target"] for entry in mounts()}
    for path in ("/var/lib/kubelet", "/var/lib/containerd", "/var/log/pods", "/etc/cni/net.d", "/opt/cni/bin", "/run"):
        assert path in targets


def test_run_is_mounted_before_what_lies_in_it() -> None:
    targets = [entry["target"] for entry in mounts()]
    assert targets.index("/run") < min(targets.index("/run/netns"), targets.index("/run/containerd"))


def test_a_node_sees_of_the_cluster_only_what_is_its_own() -> None:
    """Neither the keys of the control plane, nor etcd, nor another node, nor the lock of its process 1."""
    own = CLUSTER.node_dir(NODE.name)
    sources = {entry["source"] for entry in mounts() if entry["source"]} - {"/cache", "/project"}
    assert all(source.startswith(f"{own}/") for source in sources)
    assert not {f"{own}/process-1.lock", f"{own}/root", f"{own}/layers"} & sources


def test_programs_and_project_are_read_only() -> None:
    readonly = {entry["target"] for entry in mounts() if entry.get("readonly")}
    assert readonly == {"/cache", "/project"}


def test_layers_that_other_nodes_have_too_are_mounted_read_only_over_containerds_folder() -> None:
    snapshots = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"
    found = mounts("1", "12")
    shared = {entry["target"]: entry for entry in found if entry["target"].startswith("/var/lib/containerd/")}
    assert list(shared) == [f"{snapshots}/1/fs", f"{snapshots}/12/fs"]
    assert all(entry["readonly"] is True for entry in shared.values())
    own = CLUSTER.node_dir(NODE.name)
    assert shared[f"{snapshots}/12/fs"]["source"] == f"{own}/image-layers/12/fs"
    targets = [entry["target"] for entry in found]
    assert targets.index("/var/lib/containerd") < targets.index(f"{snapshots}/1/fs")
    assert not any(entry["source"].endswith("/image-layers") for entry in found), "no other way to the same files"


@pytest.mark.parametrize(
    ("paths", "kept"),
    [
        pytest.param(["/root/.cache/x", "/root/.cache/x/bin", "/src"], ["/src", "/root/.cache/x"], id="nested"),
        pytest.param(["/usr/lib/python3", "/opt/nodewright", ""], [], id="system"),
        pytest.param(["/a", "/ab"], ["/a", "/ab"], id="same beginning"),
    ],
)
def test_what_is_bound_read_only(paths: list[str], kept: list[str]) -> None:
    assert node_files.readonly_folders(paths) == kept
