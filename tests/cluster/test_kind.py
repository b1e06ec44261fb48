"""A real cluster of kind: `nodewright join` beside it, upstream's suite on the node that joined, and our agent in the
kubelet's place in a node image of kind's.

kind's own binary, Docker from Debian in namespaces of its own, a node image that `kind build node-image` made without a
registry (tests/kind). Takes ten minutes the first time: run by hand (`pytest tests/cluster/test_kind.py -m soak`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from controlplane.binaries.work import ensure
from controlplane.cluster.edge.roots import cache_root
from controlplane.images.plan.image_names import BUSYBOX_NAME
from controlplane.images.work import ensure_images
from tests.cluster.command_line import PROJECT, until
from tests.kind import host
from tests.kind.host import CONTROL_PLANE, KUBECONFIG, OUTSIDE, cli_on_host, joined, kind_cluster, kubectl, on_host
from tests.kind.suite import NODE_CONFORMANCE, Choice, nodes_by_namespace, serving_images, suite_programs, watched_pods

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(bool(host.missing()), reason=host.missing()),
]


@pytest.fixture(scope="module", autouse=True)
def docker_host() -> Iterator[None]:
    with host.docker_host():
        yield


def load_busybox(*, onto_host: bool) -> None:
    binaries = ensure((), cache_dir=Path(cache_root()))
    archive = ensure_images([BUSYBOX_NAME], cache_dir=Path(cache_root()), binaries=binaries)[BUSYBOX_NAME]
    on_host("kind", "load", "image-archive", archive)
    if onto_host:
        on_host("ctr", "-n", "k8s.io", "images", "import", archive)


def ask(pod: str, url: str) -> str:
    return kubectl("exec", pod, "--", "wget", "-q", "-T", "10", "-O-", url).strip()


def test_a_node_that_joined_beside_kind_and_left() -> None:
    with kind_cluster("localhost/kind-node") as said:
        assert "Ready after" in said, said
        with joined():
            _pods_talk()


def _service_leads(pod: str, node: str) -> bool:
    return ask(pod, "http://web.default.svc.cluster.local/") == node


def _pods_talk() -> None:
    load_busybox(onto_host=True)
    kubectl("apply", "-f", "-", text=(PROJECT / "tests/kind/web.yaml").read_text())
    kubectl("rollout", "status", "ds/web", "--timeout=120s")
    rows = json.loads(kubectl("get", "pods", "-l", "app=web", "-o", "json"))["items"]
    by_node = {row["spec"]["nodeName"]: row for row in rows}
    assert set(by_node) == {CONTROL_PLANE, OUTSIDE}
    for here, there in ((OUTSIDE, CONTROL_PLANE), (CONTROL_PLANE, OUTSIDE)):
        pod = by_node[here]["metadata"]["name"]
        assert ask(pod, f"http://{by_node[there]['status']['podIP']}:8080/") == there
        until(partial(_service_leads, pod, there), f"the Service leads {here} to {there}")
        assert kubectl("logs", pod) == ""


@pytest.mark.parametrize("choice", [Choice("smoke", ("--tier=smoke",), 7), NODE_CONFORMANCE], ids=str)
def test_upstream_s_suite_on_the_node_that_joined(choice: Choice, tmp_path: Path) -> None:
    programs = suite_programs()
    with kind_cluster("localhost/kind-node") as said:
        assert "Ready after" in said, said
        with joined(), serving_images(), watched_pods(programs, tmp_path / "pods"):
            # As kubeadm leaves it where there are other nodes. The suite expects no pod of its own there.
            kubectl("taint", "nodes", CONTROL_PLANE, "node-role.kubernetes.io/control-plane:NoSchedule")
            words = (f"--kubeconfig={KUBECONFIG}", f"--results={tmp_path}/results", "--procs=4")
            said = cli_on_host("conformance", *words, *choice.words, check=False, timeout=5400)
    report = json.loads((tmp_path / "results/results.json").read_text())
    failed = {one["name"]: one["reason"] for one in report["results"] if one["outcome"] == "failed"}
    assert (failed, report["status"]) == ({}, 0), said
    assert len(report["results"]) >= choice.least, said
    found = nodes_by_namespace((tmp_path / "pods").read_text())
    assert set().union(*found.values()) == {OUTSIDE}, found
    assert len(found) >= choice.least_with_pods, found


def test_our_agent_in_the_kubelet_s_place_in_a_node_image() -> None:
    with kind_cluster("localhost/kind-nodewright") as said:
        assert "Ready after" in said, said
        process = on_host(
            "docker",
            "exec",
            CONTROL_PLANE,
            "sh",
            "-c",
            "readlink /proc/$(systemctl show -P MainPID kubelet)/exe; pidof kubelet",
        )
        assert "python3" in process.splitlines()[0] and len(process.splitlines()[1].split()) == 1
        load_busybox(onto_host=False)
        kubectl("apply", "-f", "-", text=(PROJECT / "tests/kind/web.yaml").read_text())
        kubectl("rollout", "status", "ds/web", "--timeout=120s")
        pod = kubectl("get", "pods", "-l", "app=web", "-o", "name").strip()
        assert ask(pod, "http://web.default.svc.cluster.local/") == CONTROL_PLANE
        assert CONTROL_PLANE in kubectl("exec", pod, "--", "cat", "/www/index.html")
