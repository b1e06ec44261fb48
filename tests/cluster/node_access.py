"""A node's own credentials, seen from the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nodelib.kube.access import ClusterAccess, load_kubeconfig
from tests.cluster.world import World


def node_access(world: World, node: str, name: str = "kubelet.conf") -> ClusterAccess:
    """The kubeconfig of a node's daemon; the files that it names are in the node's /etc/kubernetes."""
    folder = Path(world.cluster.node_dir(node), "kubernetes")
    access = load_kubeconfig(str(folder / name))

    def here(path: str | None) -> str | None:
        return path and str(folder / Path(path).relative_to("/etc/kubernetes"))

    return replace(access, cert_file=here(access.cert_file), key_file=here(access.key_file))
