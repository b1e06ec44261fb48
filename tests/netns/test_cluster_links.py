"""Links and uplink rules of a cluster in real namespaces; the "host" is one too, so this machine is not changed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")]

# Runs inside of a network and mount namespace of its own, which is the host for it.
WORLD = """
import asyncio, json, os, subprocess, sys, tempfile
from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.work import host_changes, network, nodes
from controlplane.cluster.work.network import networks_in_use
from controlplane.machine.edge import cgroups, namespaces, process_one
from controlplane.supervisor.edge import units
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

def ip(net, *words):
    into = ["nsenter", f"--net={net}"] if net else []
    return subprocess.run([*into, "ip", *words], check=True, capture_output=True, text=True).stdout

def rules():
    return subprocess.run(["iptables", "-S"], capture_output=True, text=True).stdout + subprocess.run(
        ["iptables", "-t", "nat", "-S"], capture_output=True, text=True).stdout

def forwarding():
    return open("/proc/sys/net/ipv4/ip_forward").read().strip()

async def main():
    cluster = Cluster("nwtlab", "10.89.200.0/24", Options(nodes=2, uplink=True), root=STATE)
    os.makedirs(cluster.dir)
    for node in cluster.nodes:
        nodes.write_files(cluster, node)
    # A new namespace takes over what the machine has: another cluster's uplink, or a container engine, may have it on.
    open("/proc/sys/net/ipv4/ip_forward", "w").write("0")
    before = forwarding()
    made = [sorted(await network.ensure_network(cluster, PROJECT)) for _ in range(2)]
    one, two = (cluster.namespace(node.name, "net") for node in cluster.nodes)
    # A closed port answers "refused": the address is reached.
    knock = "import socket, sys; s = socket.socket(); s.settimeout(3); print(s.connect_ex((sys.argv[1], 9)))"
    reach = [subprocess.run(["nsenter", f"--net={one}", sys.executable, "-c", knock, target], capture_output=True,
                            text=True).stdout.strip() for target in ("10.89.200.12", "10.89.200.1")]
    dead = {}
    for target in ("10.244.9.9",):
        dead[target] = subprocess.run(["nsenter", f"--net={one}", "ip", "route", "get", target],
                                      capture_output=True, text=True).returncode
    local = ip(one, "route", "get", "10.96.0.1")
    forwarded = ip(one, "route", "get", "10.96.0.1", "from", "10.244.0.9", "iif", "eth0")
    hostname = subprocess.run(["nsenter", f"--uts={cluster.namespace('node2', 'uts')}", "hostname"],
                              capture_output=True, text=True).stdout.strip()
    folders = subprocess.run(["nsenter", f"--mount={cluster.namespace('node2', 'mnt')}", "ls", "/sys/fs/cgroup"],
                             capture_output=True, text=True).stdout.split()
    during, on = rules(), forwarding()
    count = await host_changes.remove_uplink(cluster.name)
    json.dump({"made": made, "reach": reach, "dead": dead, "local": local, "forwarded": forwarded, "hostname": hostname,
               "cgroups": folders, "during": during, "after": rules(), "count": count, "forwarding": [before, on],
               "networks": await asyncio.to_thread(networks_in_use)}, sys.stdout)
    for node in cluster.nodes:
        process_one.kill(units.machine_lock(cluster.unit_dir(node.name)))
    namespaces.unmount_below(cluster.dir)
    cgroups.remove(cgroups.hierarchies(), cluster.cgroup)
    cgroups.remove_if_empty(cgroups.hierarchies(), "/nodewright")

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    state = tmp_path_factory.mktemp("state")
    script = f"PROJECT, STATE = {str(PROJECT)!r}, {str(state)!r}\n{WORLD}"
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "NODEWRIGHT_STATE": str(state)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_links_are_made_once(world: dict[str, object]) -> None:
    assert world["made"] == [["", "node1", "node2"], []]


def test_nodes_reach_each_other_and_the_host(world: dict[str, object]) -> None:
    assert world["reach"] == [str(errno.ECONNREFUSED)] * 2


def test_a_dead_pod_address_is_unreachable_at_once(world: dict[str, object]) -> None:
    assert world["dead"] == {"10.244.9.9": 2}


def test_a_service_address_has_a_route_so_that_rules_see_its_packets(world: dict[str, object]) -> None:
    assert "dev eth0 src 10.89.200.11" in str(world["local"])
    assert "10.96.0.1 from 10.244.0.9 dev eth0" in str(world["forwarded"])


def test_a_node_has_its_name_and_still_sees_the_cgroups(world: dict[str, object]) -> None:
    assert world["hostname"] == "node2"
    assert world["cgroups"]


def test_the_uplink_comes_and_goes(world: dict[str, object]) -> None:
    during, after = str(world["during"]), str(world["after"])
    assert "-s 10.89.200.0/24 ! -o nw-nwtlab" in during
    assert during.count("nodewright:nwtlab") == world["count"] == 3
    assert "nodewright" not in after
    assert world["forwarding"] == ["0", "1"]


def test_networks_in_use_are_seen(world: dict[str, object]) -> None:
    assert "10.89.200.1/24" in list(world["networks"])  # type: ignore[call-overload]


def test_nothing_of_this_machine_changed(world: dict[str, object]) -> None:
    links = os.listdir("/sys/class/net")
    assert "nw-nwtlab" not in links
