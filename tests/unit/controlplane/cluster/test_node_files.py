"""A node's mounts, configuration and name resolution."""

from __future__ import annotations

import json
import tomllib
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


@pytest.mark.parametrize("restrict", [True, False])
def test_containerd_config_is_toml_and_follows_the_machine(restrict: bool) -> None:
    config = tomllib.loads(node_files.containerd_config(restrict_oom_score_adj=restrict, durable=True))
    assert config["version"] == 3
    assert config["plugins"]["io.containerd.cri.v1.runtime"]["restrict_oom_score_adj"] is restrict
    assert config["plugins"]["io.containerd.cri.v1.runtime"]["cni"]["use_internal_loopback"] is True


def test_the_plugins_of_a_network_that_brings_none_are_debian_s() -> None:
    """kindnet writes a configuration with ptp, host-local and portmap, and expects them on the node."""
    config = tomllib.loads(node_files.containerd_config(restrict_oom_score_adj=False, durable=True))
    folders = config["plugins"]["io.containerd.cri.v1.runtime"]["cni"]["bin_dirs"]
    assert folders == ["/opt/cni/bin", "/usr/lib/cni"]  # ours is in the first


def test_every_handler_makes_containers_with_the_runc_that_was_built() -> None:
    made = node_files.containerd_config(restrict_oom_score_adj=True, durable=False, runc="/cache/bin/runc-1/runc")
    runtimes = tomllib.loads(made)["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    assert {name: one["options"]["BinaryName"] for name, one in runtimes.items()} == {
        "runc": "/cache/bin/runc-1/runc",
        "test-handler": "/cache/bin/runc-1/runc",
    }
    assert "BinaryName" not in node_files.containerd_config(restrict_oom_score_adj=True, durable=True)


@pytest.mark.parametrize("durable", [True, False])
def test_containerd_writes_its_database_and_its_layers_to_the_disk_or_neither(durable: bool) -> None:
    plugins = tomllib.loads(node_files.containerd_config(restrict_oom_score_adj=True, durable=durable))["plugins"]
    assert plugins["io.containerd.metadata.v1.bolt"]["no_sync"] is not durable
    assert plugins["io.containerd.service.v1.diff-service"]["sync_fs"] is durable  # `load`
    assert plugins["io.containerd.cri.v1.images"]["image_pull_with_sync_fs"] is durable  # the kubelet's pulls


def test_kubelet_config_is_safe() -> None:
    config = json.loads(node_files.kubelet_config(CLUSTER, NODE))
    assert config["authentication"]["anonymous"]["enabled"] is False
    assert config["authorization"]["mode"] == "Webhook"
    assert config["readOnlyPort"] == 0
    assert config["seccompDefault"] is True
    assert config["podPidsLimit"] > 0
    assert config["rotateCertificates"] is True
    assert config["eventRecordQPS"] > 0 and config["makeIPTablesUtilChains"] is True
    assert config["streamingConnectionIdleTimeout"] not in ("", "0s")
    assert config["tlsCipherSuites"] and all("ECDHE" in name for name in config["tlsCipherSuites"])
    assert config["cgroupRoot"] == "/"


def test_configuration_of_the_daemons_is_for_root_only() -> None:
    """CIS 4.1.9; what pods read (hosts, resolv.conf) is not."""
    assert {node_files.mode(name) for name in ("kubernetes/kubelet.yaml", "kubernetes/proxy.yaml")} == {0o600}
    assert {node_files.mode(name) for name in ("hosts", "hostname", "etc-containerd/config.toml")} == {0o644}


def test_proxy_config_leaves_the_size_of_conntrack_alone() -> None:
    config = json.loads(node_files.proxy_config(CLUSTER, NODE))
    assert config["conntrack"] == {"maxPerCore": 0, "min": 0}  # the timeouts are upstream's defaults
    assert config["mode"] == "iptables"


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
