"""What the composition root decides about the pod network. Frozen."""

from __future__ import annotations

from dataclasses import dataclass

from cni.model import Network
from cni.spec import SUPPORTED, TYPE
from nodelib.json_values import Json

SOCKET = "/run/nodewright/cni.sock"
OVERLAYS = ("auto", "vxlan", "routes")


@dataclass(frozen=True, slots=True)
class CniSettings:
    """One node's pod network.

    pod_cidrs: fixed ranges; empty: those of the own Node object, as soon as it has them.
    cluster_cidrs: every pod of the cluster; traffic to them is never translated.
    non_masquerade: more destinations that see pod addresses (node addresses are added by themselves).
    mtu: 0 finds it: the uplink's, less the overlay's header where pods of another node are reached through it.
    overlay: "auto" routes to nodes on a link of this one and uses VXLAN to the others, "vxlan" uses it to all,
    "routes" never. vxlan_port: UDP, the same on every node.
    firewall: "iptables" or "nftables", as the service proxy of the node has it.
    """

    node_name: str
    network: str = "nodewright"
    bridge: str = "nw0"
    mtu: int = 0
    hairpin: bool = True
    pod_cidrs: tuple[Network, ...] = ()
    cluster_cidrs: tuple[Network, ...] = ()
    non_masquerade: tuple[Network, ...] = ()
    masquerade: bool = True
    overlay: str = "auto"
    vxlan_port: int = 4789
    firewall: str = "iptables"
    socket: str = SOCKET
    data_dir: str = "/var/lib/cni/nodewright"
    conf_file: str = "/etc/cni/net.d/10-nodewright.conflist"
    bin_dir: str = "/opt/cni/bin"


def conflist(settings: CniSettings, pod_cidrs: tuple[Network, ...]) -> Json:
    """The network configuration list for the runtime (spec 1.1, section 1).

    `cniVersion` stays at 1.0.0 with the newer ones in `cniVersions`, so that a runtime that knows only 1.0.0
    (containerd 1.6) loads it too, and a newer one gets GC and STATUS.
    """
    plugin: Json = {
        "type": TYPE,
        "bridge": settings.bridge,
        "mtu": settings.mtu,
        "hairpinMode": settings.hairpin,
        "ipMasq": settings.masquerade,
        "nonMasqueradeCIDRs": [str(item) for item in (*settings.cluster_cidrs, *settings.non_masquerade)],
        "firewall": settings.firewall,
        "dataDir": settings.data_dir,
        "ipam": {"ranges": [[{"subnet": str(cidr)}] for cidr in pod_cidrs]},
        "capabilities": {"portMappings": True, "bandwidth": True},
    }
    return {
        "cniVersion": "1.0.0",
        "cniVersions": [version for version in SUPPORTED if version >= "0.4.0"],
        "name": settings.network,
        "plugins": [plugin],
    }
