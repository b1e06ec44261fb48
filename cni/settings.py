"""The settings of a node's pod network, and the .conflist that follows from them."""

from __future__ import annotations

from dataclasses import dataclass

from cni.model import Network
from cni.spec.configuration import TYPE
from cni.spec.versions import SUPPORTED
from nodelib.json_values import Json

SOCKET = "/run/nodewright/cni.sock"
OVERLAYS = ("auto", "vxlan", "routes")


@dataclass(frozen=True, slots=True)
class CniSettings:
    """Settings of one node's pod network.

    pod_cidrs: fixed ranges; empty: those of the node's own Node object, once it has them.
    cluster_cidrs: all pods of the cluster; traffic to them is never translated.
    non_masquerade: further destinations that see pods' own addresses; node addresses are added automatically.
    mtu: of pods; 0: the uplink's, less the overlay's header if pods of another node are reached through it.
    overlay: "auto" uses routes to nodes on a shared link and VXLAN to all others, "vxlan" always VXLAN,
    "routes" never. vxlan_port: a UDP port, the same on every node.
    firewall: "iptables" or "nftables", the same as the node's service proxy.
    share_connections: whether pods are kept from filling the node's table of connections.
    connection_limit: entries that count as a full table; 0: net.netfilter.nf_conntrack_max.
    policy_socket: of the daemon that puts a pod's network policies in force before it runs; "": there is none.
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
    share_connections: bool = True
    connection_limit: int = 0
    socket: str = SOCKET
    policy_socket: str = ""
    data_dir: str = "/var/lib/cni/nodewright"
    conf_file: str = "/etc/cni/net.d/10-nodewright.conflist"
    bin_dir: str = "/opt/cni/bin"


def conflist(settings: CniSettings, pod_cidrs: tuple[Network, ...]) -> Json:
    """The network configuration list for the runtime (spec 1.1, section 1).

    `cniVersion` is 1.0.0 and newer versions are in `cniVersions`: so a runtime that knows only 1.0.0 (containerd 1.6)
    loads it too, and a newer one uses GC and STATUS.
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
    if settings.policy_socket:
        plugin["policySocket"] = settings.policy_socket
    return {
        "cniVersion": "1.0.0",
        "cniVersions": [version for version in SUPPORTED if version >= "0.4.0"],
        "name": settings.network,
        "plugins": [plugin],
    }
