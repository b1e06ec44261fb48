"""`up` and `down` for real: the cluster works, is repaired by another `up`, survives crashes, leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.cluster.model import CONTROL_PLANE, Cluster
from controlplane.supervisor.edge import units
from tests.cluster.command_line import (
    STATE,
    cli,
    differences,
    namespaces_in_use,
    network_namespaces,
    start,
    traces,
    until,
)
from tests.cluster.reboot import as_after_a_reboot

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

NAME = "tupdown"
UP = ("up", "--name", NAME, "--no-uplink", "--plain")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One cluster for the tests that inspect and repair it."""
    cli("down", "--name", NAME, "--plain")
    before = traces(NAME)
    cli(*UP)
    yield record()
    spaces, there = network_namespaces(NAME), listed()["processes"]
    said = cli("down", "--name", NAME, "--plain").stdout
    ended = re.search(r"\((\d+) processes", said)
    assert ended is not None and abs(int(ended[1]) - there) < 10, f"{said}, of {there}; probes come and go"
    assert differences(before, traces(NAME)) == {}
    until(lambda: not spaces & namespaces_in_use(), "the network namespaces are gone")


def record() -> Cluster:
    return Cluster.from_json(json.loads((STATE / NAME / "cluster.json").read_text()), str(STATE))


def status() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("status", "--name", NAME, "--json", check=False).stdout)
    return found


def pid_of(cluster: Cluster, unit: str, name: str) -> int:
    row = units.programs(cluster.unit_dir(unit)).get(name)
    return int(row["pid"]) if row and row["alive"] else 0


def kubectl(*arguments: str, check: bool = True) -> str:
    return cli("kubectl", "--name", NAME, "--", *arguments, check=check).stdout


def containers() -> dict[str, tuple[str, int]]:
    pods = json.loads(kubectl("get", "pods", "-A", "-o", "json"))["items"]
    return {
        status["containerID"]: (status["state"]["running"]["startedAt"], status["restartCount"])
        for pod in pods
        for status in pod["status"]["containerStatuses"]
    }


def test_it_says_what_answered_and_what_to_try(cluster: Cluster) -> None:
    text = cli(*UP).stdout
    for way in ("ClusterIP, from node1", "DNS name, from pod", "NodePort on node1", "NodePort on node2"):
        assert way in text
    assert "on node1, node2" in text
    assert f"./nodewright kubectl --name {NAME} get pods" in text


def test_a_second_up_restarts_nothing(cluster: Cluster) -> None:
    daemons, before = status()["daemons"], containers()
    cli(*UP)
    assert [daemon["pid"] for daemon in status()["daemons"]] == [daemon["pid"] for daemon in daemons]
    assert containers() == before


def test_kubectl_reaches_pods_through_the_nodes(cluster: Cluster) -> None:
    assert kubectl("exec", "deploy/demo", "--", "hostname").startswith("demo-")
    assert "hostname" in kubectl("logs", "deploy/demo")
    nodes = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    assert [node["metadata"]["name"] for node in nodes] == ["node1", "node2"]


@pytest.mark.parametrize("daemon", ["containerd", "agent", "proxy"])
def test_a_killed_daemon_comes_back_and_containers_stay(cluster: Cluster, daemon: str) -> None:
    before, first = containers(), pid_of(cluster, "node1", daemon)
    os.kill(first, signal.SIGKILL)
    until(lambda: pid_of(cluster, "node1", daemon) not in (0, first), f"{daemon} runs again")
    until(lambda: not any(node["waits_for"] for node in status()["nodes"]), "nodes are Ready")
    assert containers() == before


def test_up_mends_what_is_missing(cluster: Cluster) -> None:
    """Every supervisor killed, the API server too, a link and a route gone, a Deployment deleted."""
    node = cluster.namespace("node2", "net")
    for unit in (CONTROL_PLANE, "node1", "node2"):
        assert units.kill_supervisor(cluster.unit_dir(unit)) == 1
    os.kill(pid_of(cluster, CONTROL_PLANE, "kube-apiserver"), signal.SIGKILL)
    for command in (("link", "del", "eth0"), ("route", "del", "unreachable", "10.244.0.0/16")):
        subprocess.run(["nsenter", f"--net={node}", "ip", *command], check=True)
    cli(*UP)
    assert status()["api"] == ""
    kubectl("delete", "deployment/demo", "service/demo")
    assert "NodePort on node2" in cli(*UP).stdout


def test_a_lost_namespace_file_is_bound_again(cluster: Cluster) -> None:
    path = cluster.namespace("node1", "net")
    inode = os.stat(path).st_ino
    subprocess.run(["umount", path], check=True)
    assert path in status()["missing"]
    cli(*UP)
    assert os.stat(path).st_ino == inode


def test_kubectl_knows_the_cluster_by_its_own_name(cluster: Cluster) -> None:
    """`up` has written the context into the user's kubeconfig, which is one of the tests' own here."""
    line = [
        cluster.tools["kubectl"],
        f"--kubeconfig={os.environ['NODEWRIGHT_KUBECONFIG']}",
        f"--context=nodewright-{NAME}",
    ]
    done = subprocess.run([*line, "get", "nodes", "--no-headers"], capture_output=True, text=True, check=True)
    assert [(row.split()[0], row.split()[2]) for row in done.stdout.splitlines()] == [
        ("node1", "control-plane"),
        ("node2", "<none>"),
    ]


def test_up_after_a_node_was_deleted(cluster: Cluster) -> None:
    """Its agent registers it again, and the pods on it live on."""
    before = containers()
    kubectl("delete", "node", "node1", "node2")
    cli(*UP)
    assert containers() == before
    assert "control-plane" in kubectl("get", "node", "node1")


def listed() -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(cli("clusters", "-o", "json", check=False).stdout)
    return next(one for one in found if one["name"] == NAME)


@pytest.mark.parametrize("how", ["stop", "reboot"])
def test_a_cluster_that_ended_comes_back_with_all_it_had(cluster: Cluster, how: str) -> None:
    kubectl("rollout", "status", "deployment/demo", "--timeout=120s")  # an earlier test's `up` may have changed it
    until(lambda: len(pods_of_demo()) == 2, "the pods of before are gone, too")
    pods, nodes = pods_of_demo(), kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.uid}")
    kubectl("create", "configmap", f"acknowledged-before-{how}")
    if how == "stop":
        cli("stop", "--name", NAME, "--plain")
    else:
        as_after_a_reboot(cluster)
    left = traces(NAME)
    assert not (left.processes | left.links | left.namespaces | left.mounts | left.cgroups)
    assert (listed()["state"], listed()["processes"]) == ("stopped", 0)
    said = cli("start", "--name", NAME, "--plain").stdout
    assert "NodePort on node2" in said
    assert listed()["state"] == "running" and listed()["ready_nodes"] == 2
    assert f"acknowledged-before-{how}" in kubectl("get", "configmaps", "-o", "name")
    assert kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.uid}") == nodes
    assert pods_of_demo() == pods, "the same pods, with the same names"
    assert status()["api"] == ""


def pods_of_demo() -> set[str]:
    return set(kubectl("get", "pods", "-l", "app=demo", "-o", "name").split())


def test_status_without_the_api_server(cluster: Cluster) -> None:
    pid = pid_of(cluster, CONTROL_PLANE, "kube-apiserver")
    os.kill(pid, signal.SIGSTOP)
    try:
        found = cli("status", "--name", NAME, check=False)
        assert found.returncode == 1
        assert "does not answer" in found.stdout
        assert "kube-apiserver" in found.stdout
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_contradiction_is_refused_and_nothing_is_lost(cluster: Cluster) -> None:
    refused = cli("up", "--name", NAME, "--uplink", "--plain", check=False)
    assert refused.returncode == 1
    assert "cannot change while it lives" in refused.stderr
    assert f"down --name {NAME}" in refused.stderr
    assert status()["api"] == ""


def test_two_at_once_do_not_mix(cluster: Cluster) -> None:
    first = start(*UP)
    second = start(*UP)
    outputs = [first.communicate(timeout=300)[0], second.communicate(timeout=300)[0]]
    codes = sorted([first.returncode, second.returncode])
    assert codes in ([0, 0], [0, 1])
    if codes == [0, 1]:
        assert any("another `up` or `down` of this cluster is running" in text for text in outputs)


def test_a_taken_port_is_named(cluster: Cluster) -> None:
    """Something foreign in the first node's network holds the API server's port."""
    code = """
import socket, time
for _ in range(600):
    try:
        held = socket.create_server(('0.0.0.0', 6443))
        break
    except OSError:  # the killed server is still going
        time.sleep(0.05)
print('held', flush=True)
time.sleep(600)
"""
    units.kill_supervisor(cluster.unit_dir(CONTROL_PLANE))
    os.kill(pid_of(cluster, CONTROL_PLANE, "kube-apiserver"), signal.SIGKILL)
    held = subprocess.Popen(
        ["nsenter", f"--net={cluster.namespace('node1', 'net')}", sys.executable, "-I", "-S", "-c", code],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert held.stdout is not None
        assert held.stdout.readline() == "held\n"
        failed = cli(*UP, check=False)
        assert failed.returncode == 1
        assert "6443" in failed.stderr
        assert "in use" in failed.stderr
    finally:
        held.kill()
        held.wait()
    cli(*UP)


# --- tests that raise clusters of their own -------------------------------------------------------------------------


@pytest.fixture
def name() -> Iterator[str]:
    """A name whose cluster is removed at the end, whatever the test did."""
    yield "tcrash"
    cli("down", "--name", "tcrash", "--plain")


@pytest.mark.parametrize("after", ["preflight", "keys and certificates", "namespaces and links", "etcd and API server"])
def test_a_crash_at_any_point_is_mended_or_removed(name: str, after: str) -> None:
    before = traces(name)
    _killed_after(name, after)
    cli("down", "--name", name, "--plain")
    assert differences(before, traces(name)) == {}
    _killed_after(name, after)
    assert "nodes Ready" in cli("up", "--name", name, "--nodes", "1", "--no-uplink", "--no-demo", "--plain").stderr


def _killed_after(name: str, step: str) -> None:
    process = start("up", "--name", name, "--nodes", "1", "--no-uplink", "--no-demo", "--plain")
    assert process.stdout is not None
    for line in process.stdout:
        if f"ok     {step}" in line:
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_down_of_what_is_not_there_is_no_error() -> None:
    done = cli("down", "--name", "tnowhere", "--plain")
    assert "there is no cluster tnowhere" in done.stdout
    assert done.stderr == "", "there are no steps to watch"


def test_a_record_that_cannot_be_read_is_named_and_removed(name: str) -> None:
    (STATE / name).mkdir(parents=True)
    (STATE / name / "cluster.json").write_text("{")
    failed = cli("up", "--name", name, "--plain", check=False)
    assert failed.returncode == 1
    assert "cannot be read" in failed.stderr
    cli("down", "--name", name, "--plain")
    assert not (STATE / name).exists()


def test_a_taken_subnet_is_refused(name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: only asks which address would be used
        address = probe.getsockname()[0]
    taken = ".".join(address.split(".")[:3]) + ".0/24"
    refused = cli("up", "--name", name, "--subnet", taken, "--no-uplink", "--plain", check=False)
    assert refused.returncode == 1
    assert "overlaps" in refused.stderr
    assert not (STATE / name).exists()


def test_a_full_disk_is_named(tmp_path: Any) -> None:
    small = tmp_path / "state"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        failed = cli("up", "--name", "tfull", "--no-uplink", "--plain", check=False, NODEWRIGHT_STATE=str(small))
        assert failed.returncode == 1
        assert "disk" in failed.stderr
        assert "NODEWRIGHT_STATE" in failed.stderr
    finally:
        subprocess.run(["umount", str(small)], check=True)
