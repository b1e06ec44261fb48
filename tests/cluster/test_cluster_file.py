"""A cluster from a file: nodes with labels and taints, a port on localhost, flags; then a node more and a node less."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.edge.roots import cache_root
from tests.cluster.command_line import STATE, cli, differences, traces, until

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]
NAME, PORT = "tfile", 18179
FILE = """
apiVersion: nodewright.io/v1alpha1
kind: Cluster
name: tfile
nodes:
  - name: head
    labels: {{tier: {tier}, node-role.kubernetes.io/control-plane: ""}}
  - name: gpu1
    labels: {{gpu: "true"}}
    taints: [{{key: gpu, value: "yes", effect: NoSchedule}}]
    cpus: 1
    memory: 1Gi
    mounts: [{{hostPath: {folder}, nodePath: /data, readOnly: true}}]
    kubelet: {{maxPods: {pods}}}
ports: [{{hostPort: 18179, nodePort: 30080}}]
apiServer: {{args: {{default-not-ready-toleration-seconds: 33}}}}
networking: {{podSubnet: 10.62.0.0/16, serviceSubnet: 10.63.0.0/20, uplink: false}}
registries: [{{host: r.example, mirrors: [{{url: "http://10.0.0.1"}}], login: {{username: me, passwordEnv: T_SECRET}}}}]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of a cluster that was raised from it."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "data").mkdir()
    (folder / "data/greeting").write_text("hello")
    path = folder / "cluster.yaml"
    path.write_text(FILE.format(tier="front", folder=folder / "data", pods=20))
    cli("down", "--name", NAME, "--plain")
    before = traces(NAME)
    cli("up", "--config", str(path), "--plain", T_SECRET="hunter2")
    yield path
    cli("down", "--name", NAME, "--plain")
    assert differences(before, traces(NAME)) == {}


def kubectl(*words: str) -> Any:
    return json.loads(cli("kubectl", "--name", NAME, "--", *words, "-o", "json").stdout)


def nodes() -> dict[str, Any]:
    return {one["metadata"]["name"]: one for one in kubectl("get", "nodes")["items"]}


def test_the_nodes_are_as_the_file_says(file: Path) -> None:
    found = nodes()
    assert list(found) == ["gpu1", "head"]
    assert found["head"]["metadata"]["labels"]["tier"] == "front"
    assert "node-role.kubernetes.io/control-plane" in found["head"]["metadata"]["labels"]
    gpu = found["gpu1"]
    assert gpu["spec"]["taints"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert (gpu["status"]["capacity"]["cpu"], gpu["status"]["capacity"]["pods"]) == ("1", "20")
    assert gpu["spec"]["podCIDR"].startswith("10.62.")
    assert cli("shell", "gpu1", "--name", NAME, "--", "cat", "/data/greeting").stdout == "hello"
    assert cli("shell", "gpu1", "--name", NAME, "--", "touch", "/data/new", check=False).returncode != 0
    assert kubectl("get", "service", "kubernetes")["spec"]["clusterIP"] == "10.63.0.1"
    arguments = (STATE / NAME / "control-plane/supervisor/spec.json").read_text()
    assert "--default-not-ready-toleration-seconds=33" in arguments
    assert "hunter2" not in arguments + (STATE / NAME / "cluster.json").read_text()


def test_the_port_of_this_machine_leads_to_the_demo(file: Path) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/hostname", timeout=30) as answer:
        assert answer.read().startswith(b"demo-")


def test_what_is_wrong_is_said_and_nothing_changes(file: Path) -> None:
    wrong = file.parent / "wrong.yaml"
    wrong.write_text(file.read_text().replace("maxPods", "maxPodz").replace("tier:", "-tier:"))
    done = cli("up", "--config", str(wrong), "--plain", check=False)
    assert done.returncode == 1
    assert "nodes[1].kubelet.maxPodz: unknown field" in done.stderr and f"{wrong}, line" in done.stderr
    wrong.write_text(file.read_text().replace("nodePath: /data", "nodePath: /other"))
    done = cli("up", "--config", str(wrong), "--plain", check=False)
    assert done.returncode == 1 and "its mounts cannot change" in done.stderr
    assert cli("node", "remove", "head", "--name", NAME, check=False).stderr.count("holds the control plane") == 1


def test_a_node_is_added_and_removed_and_up_remembers_both(file: Path) -> None:
    cli("node", "add", "extra", "--labels", "zone=a", "--name", NAME, "--plain")
    found = nodes()
    assert found["extra"]["metadata"]["labels"]["zone"] == "a"
    assert "extra" in cli("up", "--name", NAME, "--print-config").stdout
    cli("kubectl", "--name", NAME, "--", "run", "alone", "--image=registry.k8s.io/pause:3.10.2",
        '--overrides={"spec":{"nodeName":"extra"}}')  # fmt: skip
    done = cli("node", "remove", "extra", "--name", NAME, "--plain", check=False)
    assert done.returncode == 1 and "default/alone" in done.stderr and "--force" in done.stderr
    assert "unschedulable" not in nodes()["extra"]["spec"], "a node that was not removed takes pods again"
    cli("node", "remove", "extra", "--force", "--timeout", "60", "--name", NAME, "--plain")
    assert list(nodes()) == ["gpu1", "head"]
    assert not (STATE / NAME / "extra").exists() and not list((STATE / NAME / "ns").glob("extra.*"))
    assert "extra" not in cli("shell", "head", "--name", NAME, "--", "cat", "/etc/hosts").stdout
    left = [one for one in kubectl("get", "pods", "-A")["items"] if one["spec"].get("nodeName") == "extra"]
    assert left == []


def test_a_second_file_mends_what_can_change(file: Path) -> None:
    folder = file.parent / "data"
    text = FILE.format(tier="back", folder=folder, pods=25).replace('value: "yes"', 'value: "no"')
    file.write_text(text.partition("registries:")[0])
    cli("up", "--config", str(file), "--plain")
    found = nodes()
    assert found["head"]["metadata"]["labels"]["tier"] == "back"
    assert found["gpu1"]["spec"]["taints"] == [{"key": "gpu", "value": "no", "effect": "NoSchedule"}]
    until(lambda: nodes()["gpu1"]["status"]["capacity"]["pods"] == "25", "the kubelet has the new configuration")
    assert not (STATE / NAME / "head/etc-containerd/certs.d/r.example").exists()
    assert "hunter2" not in (STATE / NAME / "head/etc-containerd/config.toml").read_text()


@pytest.mark.skipif(
    not list(Path(cache_root(), "bin").glob("metrics-server-*/metrics-server")),
    reason="metrics-server is not built yet (minutes): `up --addons metrics` does it",
)
def test_an_addon_comes_and_goes(file: Path) -> None:
    def state() -> dict[str, Any]:
        listed = json.loads(cli("addons", "list", "--json", "--name", NAME).stdout)
        return {one["name"]: one for one in listed}

    cli("addons", "add", "metrics", "--name", NAME, "--plain")
    assert state()["metrics"] | {"about": ""} == {"name": "metrics", "about": "", "added": True, "waits_for": ""}
    assert "is removed" in cli("addons", "remove", "metrics", "--name", NAME, "--plain").stdout
    assert "Nothing to remove" in cli("addons", "remove", "metrics", "--name", NAME, "--plain").stdout
    assert not state()["metrics"]["added"]
