"""The configurations of a node's daemons: safe, and as the machine and the cluster need them."""

from __future__ import annotations

import json
import tomllib

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan import daemon_configs

CLUSTER = Cluster("lab", "10.89.3.0/24", Options(nodes=2))
NODE = CLUSTER.nodes[1]


@pytest.mark.parametrize("restrict", [True, False])
def test_containerd_config_is_toml_and_follows_the_machine(restrict: bool) -> None:
    config = tomllib.loads(daemon_configs.containerd_config(restrict_oom_score_adj=restrict, durable=True))
    assert config["version"] == 3
    assert config["plugins"]["io.containerd.cri.v1.runtime"]["restrict_oom_score_adj"] is restrict
    assert config["oom_score"] == (0 if restrict else -999), "as in containerd.service"
    assert config["plugins"]["io.containerd.cri.v1.runtime"]["cni"]["use_internal_loopback"] is True


def test_the_plugins_of_a_network_that_brings_none_are_debian_s() -> None:
    """kindnet writes a configuration with ptp, host-local and portmap, and expects them on the node."""
    config = tomllib.loads(daemon_configs.containerd_config(restrict_oom_score_adj=False, durable=True))
    folders = config["plugins"]["io.containerd.cri.v1.runtime"]["cni"]["bin_dirs"]
    assert folders == ["/opt/cni/bin", "/usr/lib/cni"]  # ours is in the first


def test_every_handler_makes_containers_with_the_runc_that_was_built() -> None:
    made = daemon_configs.containerd_config(restrict_oom_score_adj=True, durable=False, runc="/cache/bin/runc-1/runc")
    runtimes = tomllib.loads(made)["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    assert {name: one["options"]["BinaryName"] for name, one in runtimes.items()} == {
        "runc": "/cache/bin/runc-1/runc",
        "test-handler": "/cache/bin/runc-1/runc",
    }
    assert "BinaryName" not in daemon_configs.containerd_config(restrict_oom_score_adj=True, durable=True)


@pytest.mark.parametrize("durable", [True, False])
def test_containerd_writes_its_database_and_its_layers_to_the_disk_or_neither(durable: bool) -> None:
    plugins = tomllib.loads(daemon_configs.containerd_config(restrict_oom_score_adj=True, durable=durable))["plugins"]
    assert plugins["io.containerd.metadata.v1.bolt"]["no_sync"] is not durable
    assert plugins["io.containerd.service.v1.diff-service"]["sync_fs"] is durable  # `load`
    assert plugins["io.containerd.cri.v1.images"]["image_pull_with_sync_fs"] is durable  # the kubelet's pulls


def test_kubelet_config_is_safe() -> None:
    config = json.loads(daemon_configs.kubelet_config(CLUSTER, NODE))
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


def test_proxy_config_leaves_the_size_of_conntrack_alone() -> None:
    config = json.loads(daemon_configs.proxy_config(CLUSTER, NODE))
    assert config["conntrack"] == {"maxPerCore": 0, "min": 0}  # the timeouts are upstream's defaults
    assert config["mode"] == "iptables"
