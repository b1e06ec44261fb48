"""What `status` knows of the daemons: those that run, and those that an interrupted `up` never came to."""

from __future__ import annotations

import json
import os
from pathlib import Path

from controlplane.cluster.model import CONTROL_PLANE, Cluster, Options
from controlplane.cluster.plan.readiness import ProxyState
from controlplane.cluster.work.status import ApiAnswer, Daemon, seen
from controlplane.supervisor.edge.procfs import start_time


def running(cluster: Cluster, unit: str, *programs: str) -> None:
    """Write down that the unit's supervisor has started these."""
    folder = Path(cluster.unit_dir(unit))
    folder.mkdir(parents=True)
    row = {"pid": os.getpid(), "start_time": start_time(os.getpid()), "digest": "", "starts": 1, "last_exit": ""}
    (folder / "state.json").write_text(json.dumps(dict.fromkeys(programs, row)))


async def daemons(cluster: Cluster) -> tuple[Daemon, ...]:
    proxies = [ProxyState("down")] * len(cluster.nodes)
    return (await seen(cluster, ApiAnswer("no answer"), proxies)).daemons


async def test_an_interrupted_up_has_daemons_that_do_not_run(tmp_path: Path) -> None:
    cluster = Cluster("lab", "10.89.0.0/24", Options(nodes=1), root=str(tmp_path))
    running(cluster, CONTROL_PLANE, "etcd", "kube-apiserver")
    running(cluster, "node1", "containerd")
    found = {(one.unit, one.name): one.alive for one in await daemons(cluster)}
    assert found == {
        (CONTROL_PLANE, "etcd"): True,
        (CONTROL_PLANE, "kube-apiserver"): True,
        (CONTROL_PLANE, "kube-controller-manager"): False,
        (CONTROL_PLANE, "kube-scheduler"): False,
        ("node1", "containerd"): True,
        ("node1", "agent"): False,
        ("node1", "proxy"): False,
        ("node1", "policy"): False,
        ("node1", "loadbalancer"): False,
    }


async def test_daemons_of_kubeadm_are_those_that_it_has_started(tmp_path: Path) -> None:
    cluster = Cluster("lab", "10.89.0.0/24", Options(nodes=1, kubeadm=True), root=str(tmp_path))
    running(cluster, "node1", "containerd")
    assert [(one.name, one.alive) for one in await daemons(cluster)] == [("containerd", True)]
