"""nerdctl beside an agent: what becomes of its containers and images, and how it shows our pods. By hand.

`NODEWRIGHT_NERDCTL=DIR ./nodewright test -m soak tests/netns/test_nerdctl.py`, DIR has nerdctl. Each test runs with our
agent and with upstream's kubelet, which is the measure of what an agent may do to what is not its own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.image_archives import busybox_named
from tests.netns.lone_node import CONTAINERD, LoneNode, busy, program, running, start_containerd

_FOLDER = program("NODEWRIGHT_NERDCTL", "nerdctl")
pytestmark = [
    pytest.mark.netns,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(_FOLDER is None, reason="NODEWRIGHT_NERDCTL names no folder with nerdctl"),
]
OWN, SHARED = "default", "k8s.io"  # namespaces of containerd: nerdctl's, and that of pods
# Every image that no pod uses is collected, by the second collection that sees it.
SETTINGS = {"imageGCHighThresholdPercent": 1, "imageGCLowThresholdPercent": 0, "imageMinimumGCAge": "1s"}
_COLLECTED_WITHIN = 600.0


@dataclass
class Bench:
    """`agent`: the name of the program that runs pods."""

    node: LoneNode
    programs: tuple[Path, ...]  # folders: containerd's, runc's
    agent: str

    def restart(self) -> None:
        if self.agent in self.node.programs:
            self.node.stop(self.agent)
        if self.agent == "kubelet":
            self.node.start_upstream()
        else:
            self.node.start_agent()

    def nerdctl(self, namespace: str, *words: str) -> str:
        assert _FOLDER is not None
        path = ":".join(("PATH=" + str(self.programs[0]), str(self.programs[1]), "/usr/sbin:/usr/bin:/sbin:/bin"))
        argv = ["env", path, f"{_FOLDER}/nerdctl", f"--namespace={namespace}", "--cgroup-manager=cgroupfs", *words]
        return self.node.run(*argv)

    def running(self, namespace: str) -> set[str]:
        return set(self.nerdctl(namespace, "ps", "--format={{.Names}}").split())

    def images(self, namespace: str) -> set[str]:
        return set(self.node.run(f"{self.programs[0]}/ctr", "-n", namespace, "images", "ls", "-q").split())

    def load(self, namespace: str, name: str) -> None:
        archive = self.node.folder / "image.tar"
        busybox_named(name, archive)
        self.nerdctl(namespace, "load", f"--input={archive}")

    def sleeps(self, namespace: str, name: str, image: str) -> None:
        self.nerdctl(namespace, "run", "-d", f"--name={name}", "--net=none", image, "sleep", "3600")


@pytest.fixture(scope="module", params=["agent", "kubelet"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with running(tmp_path_factory.mktemp("nerdctl"), CONTAINERD, SETTINGS) as node:
        bench = Bench(node, start_containerd(node), request.param)
        bench.restart()
        yield bench


def test_a_pod_is_shown_by_the_labels_that_a_kubelet_gives(bench: Bench) -> None:
    """Names come from them; logs from the path that containerd's CRI was told; commands go by container ID."""
    bench.node.put("seen", busy(), hostNetwork=True)
    status = bench.node.ready("seen")
    assert {"k8s://default/seen-lone/main", "k8s://default/seen-lone"} <= bench.running(SHARED)
    assert bench.running(OWN) == set()
    box = re.sub(r".*://", "", status["containerID"])
    assert bench.nerdctl(SHARED, "exec", box, "echo", "inside") == "inside\n"
    assert bench.nerdctl(SHARED, "logs", box) == "begun\n"
    found: Any = json.loads(bench.nerdctl(SHARED, "inspect", box))[0]["Config"]["Labels"]
    pods = bench.node.pods() or {}
    assert {key: value for key, value in found.items() if key.startswith("io.kubernetes")} == {
        "io.kubernetes.container.name": "main",
        "io.kubernetes.pod.name": "seen-lone",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": pods["seen"]["metadata"]["uid"],
    }
    bench.node.take("seen")


def test_containers_of_nerdctl_run_on_and_images_are_only_collected_where_pods_have_theirs(bench: Bench) -> None:
    """CRI lists all images of its namespace and no container but its own: there the collector takes an image that only
    nerdctl uses, unless it is pinned. Its container goes on."""
    for name in ("own", "unused"):
        bench.load(OWN, f"example.test/{name}:1")
    bench.load(SHARED, "example.test/base:1")
    # Names of one image are collected together: these two are others.
    bench.sleeps(SHARED, "base", "example.test/base:1")
    for name in ("used", "pinned"):
        bench.nerdctl(SHARED, "commit", f"--message={name}", "base", f"example.test/{name}:1")
    label = ("images", "label", "example.test/pinned:1", "io.cri-containerd.pinned=pinned")
    bench.node.run(f"{bench.programs[0]}/ctr", "-n", SHARED, *label)
    bench.sleeps(SHARED, "mine", "example.test/used:1")
    bench.sleeps(OWN, "mine", "example.test/own:1")
    kept = bench.images(OWN)
    bench.restart()  # it has seen them all then, and collects five minutes later
    bench.node.wait(
        lambda: "example.test/used:1" not in bench.images(SHARED), "the image of no pod is collected", _COLLECTED_WITHIN
    )
    bench.node.put("beside", busy(image="example.test/pinned:1", imagePullPolicy="Never"), hostNetwork=True)
    bench.node.ready("beside")
    assert bench.images(OWN) == kept >= {"example.test/own:1", "example.test/unused:1"}
    assert "example.test/pinned:1" in bench.images(SHARED)
    for namespace in (OWN, SHARED):
        assert "mine" in bench.running(namespace)
        assert bench.nerdctl(namespace, "exec", "mine", "echo", "runs") == "runs\n"
    assert set(bench.node.pods() or {}) == {"beside"}
    counted = json.loads(bench.node.ask("/stats/summary"))["pods"]
    assert [one["podRef"]["name"] for one in counted] == ["beside-lone"]
    bench.node.take("beside")
    for namespace in (OWN, SHARED):
        bench.nerdctl(namespace, "rm", "-f", "mine")
