"""Who enforces policies, and how each is started on a node of the benchmark: as its authors say, or it is said why."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.cluster.edge.lab import ADDRESS
from nodelib.kube.access import save_kubeconfig
from tests.bench.policy_peers.objects import NODE
from tests.bench.policy_peers.world import World

_QUEUE = "100"
_SELECTED = "bench-pods"


@dataclass(frozen=True, slots=True)
class Start:
    """A command line, and what is added to its environment."""

    argv: Sequence[str]
    env: Mapping[str, str]


class Nodewright:
    name = "nodewright"
    binary = ""

    async def start(self, world: World, binary: Path, selected: Sequence[str]) -> Start:
        flags = [f"--kubeconfig={_kubeconfig(world)}", f"--hostname-override={NODE}"]
        flags += [f"--socket={world.folder}/policy.sock", f"--state-file={world.folder}/held.json"]
        return Start([sys.executable, "-m", "policy", *flags, f"--cni-conf-dir={world.folder}"], {})


class KubeRouter:
    """Only its firewall: neither its routes nor its service proxy."""

    name = binary = "kube-router"

    async def start(self, world: World, binary: Path, selected: Sequence[str]) -> Start:
        flags = ["--run-firewall=true", "--run-router=false", "--run-service-proxy=false", "--enable-cni=false"]
        flags += [f"--kubeconfig={_kubeconfig(world)}", f"--hostname-override={NODE}", "-v=1"]
        return Start([str(binary), *flags], {})


class KubeNetworkPolicies:
    """It decides in its own process on packets that its rules queue to it.

    Its rules need nft_queue. Where the kernel has only xt_NFQUEUE it logs that its rules are refused and listens all
    the same: there the same rules are written here, by iptables, for the pods that policies select (`selected`). It
    speaks only to the API server of the pod that it is in, so it gets files and variables as in a pod.
    """

    name = binary = "kube-network-policies"

    async def start(self, world: World, binary: Path, selected: Sequence[str]) -> Start:
        if not await _has_nft_queue(world):
            await _queue_by_iptables(world, selected)
        files = world.folder / "serviceaccount"
        files.mkdir()
        (files / "token").write_text(world.lab.token)
        (files / "ca.crt").write_bytes((world.lab.folder / "pki" / "apiserver.crt").read_bytes())
        (files / "namespace").write_text("kube-system")
        place = "/run/secrets/kubernetes.io/serviceaccount"
        script = f'mount -t tmpfs tmpfs /run && mkdir -p {place} && cp {files}/* {place}/ && exec "$0" "$@"'
        flags = [f"--hostname-override={NODE}", f"--nfqueue-id={_QUEUE}"]
        env = {"KUBERNETES_SERVICE_HOST": ADDRESS, "KUBERNETES_SERVICE_PORT": "6443"}
        return Start(["unshare", "--mount", "sh", "-c", script, str(binary), *flags], env)


Maker = Nodewright | KubeRouter | KubeNetworkPolicies
MAKERS: dict[str, Maker] = {one.name: one for one in (Nodewright(), KubeRouter(), KubeNetworkPolicies())}


async def _has_nft_queue(world: World) -> bool:
    rule = "table inet probe { chain c { type filter hook postrouting priority 0; queue num 1; }; }"
    done = await world.node.run("nft", "-c", rule, check=False)
    return done.returncode == 0


async def _queue_by_iptables(world: World, selected: Sequence[str]) -> None:
    """What it writes itself (syncNFTablesRules), with nft's set as an ipset."""
    await world.node.run("ipset", "create", _SELECTED, "hash:ip")
    for one in selected:
        await world.node.run("ipset", "add", _SELECTED, one)
    queue = ("-j", "NFQUEUE", "--queue-num", _QUEUE, "--queue-bypass")
    for rule in (
        ("-m", "owner", "--uid-owner", "0", "-j", "ACCEPT"),
        ("-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT"),
        ("-m", "set", "--match-set", _SELECTED, "src", *queue),
        ("-m", "set", "--match-set", _SELECTED, "dst", *queue),
    ):
        await world.node.run("iptables", "-t", "mangle", "-A", "POSTROUTING", *rule)


def _kubeconfig(world: World) -> str:
    path = str(world.folder / "kubeconfig")
    save_kubeconfig(path, world.lab.access)
    return path
