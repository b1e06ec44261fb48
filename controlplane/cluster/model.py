"""A cluster on one machine: its options, addresses and paths.

Everything else (links, certificates, flags, files) is derived from a `Cluster`.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from controlplane.config.model import Custom, Member
from nodelib.version import KUBERNETES_VERSION as KUBERNETES_VERSION

RELEASE = KUBERNETES_VERSION.removeprefix("v").rpartition(".")[0]
DEFAULT_NAME = "nodewright"
POD_CIDR = "10.244.0.0/16"
SERVICE_CIDR = "10.96.0.0/16"
POD_CIDR6 = "fd00:10:244::/56"
SERVICE_CIDR6 = "fd00:10:96::/112"
FAMILIES = {"ipv4": (4,), "ipv6": (6,), "dual": (4, 6)}  # of --ip-family; single addresses are of the first
CLUSTER_DOMAIN = "cluster.local"
API_PORT = 6443
CGROUP_ROOT = "/nodewright"
STATE_ROOT = "/var/lib/nodewright"
CONTROL_PLANE = "control-plane"
BALANCER = "balancer"  # the unit of the load balancer in front of several control planes
PORTS = "ports"  # the unit that leads ports of this machine to nodes
OUTSIDE = (CONTROL_PLANE, BALANCER, PORTS)  # units that run on this machine and not in a node
KINDS = ("net", "uts", "ipc", "cgroup", "pid", "mnt")  # a node's namespaces; nsenter(1) needs the mounts last
BALANCER_HOST = 10  # its host number in the nodes' subnet

_ONCE_OFF = ("network_policy", "load_balancer")

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


# The host's link is called nw-NAME, and the name of a link has at most 15 characters (IFNAMSIZ).
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?")


def is_name(name: str) -> bool:
    """Whether a cluster can have this name."""
    return _NAME.fullmatch(name) is not None


def in_url(address: str) -> str:
    """An address as the host of a URL."""
    return f"[{address}]" if ":" in address else address


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a cluster; kept in its state directory, so that a second `up` repairs the same cluster."""

    nodes: int = 2
    proxy_mode: str = "iptables"
    agent: str = "nodewright"  # or upstream, for comparison
    proxy: str = "nodewright"
    network_policy: bool = True  # whether the nodes enforce NetworkPolicies
    load_balancer: bool = True  # whether Services of type LoadBalancer get addresses
    load_balancer_pool: str = ""  # ranges of these addresses, separated by commas; "" for the default
    storage: bool = False  # whether the nodes provide volumes for claims without a class
    ip_family: str = "ipv4"  # a key of FAMILIES
    routed: bool = False  # every node on its own link, with a router between them
    uplink: bool = True
    durable: bool = False
    demo: bool = True
    kubeadm: bool = False  # raised by kubeadm, with the control plane as static pods
    control_planes: int = 1  # number of control plane nodes, with kubeadm
    joined: int = 0  # the last nodes, which `nodewright join` adds instead of kubeadm
    network: str = "nodewright"  # or kindnet: a CNI DaemonSet like kind's
    kubernetes: str = RELEASE  # the control plane's minor version
    cpus: int = 0  # of each node; 0: all of the machine's
    memory: int = 0  # of each node, in bytes; 0: all of the machine's
    addons: str = ""  # names from controlplane.cluster.plan.addons, separated by commas
    members: tuple[Member, ...] = ()  # nodes of their own kind; further ones, up to `nodes`, are plain
    custom: Custom = field(default_factory=Custom)  # what only a file can say

    @property
    def enforces_policies(self) -> bool:
        """Whether our policy daemon runs on the nodes: it goes with our pod network, in clusters that `up` raises."""
        return self.network_policy and self.agent == "nodewright" and not self.kubeadm

    @property
    def gives_addresses(self) -> bool:
        """Whether our load balancer daemon runs on the nodes: they are on one link, in a cluster that `up` raises."""
        return self.load_balancer and not self.routed and not self.kubeadm

    @property
    def provides_volumes(self) -> bool:
        """Whether our CSI driver runs on the nodes, with any kubelet, in clusters that `up` raises."""
        return self.storage and not self.kubeadm

    @property
    def addon_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name.strip() for name in self.addons.split(",") if name.strip()))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Options:
        known: dict[str, Any] = dict.fromkeys(_ONCE_OFF, False)  # of a cluster that was made before they existed
        known |= {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        known["members"] = tuple(map(Member.from_json, known.get("members") or ()))
        known["custom"] = Custom.from_json(known.get("custom") or {})
        return cls(**known)

    @property
    def all_members(self) -> tuple[Member, ...]:
        """One for each node, in the order of the nodes, each with a number."""
        return numbered(self.members, self.nodes)


def numbered(members: tuple[Member, ...], count: int) -> tuple[Member, ...]:
    """These members with free numbers for those without one, and plain ones after them until there are `count`."""
    taken = {one.number for one in members}
    free = (number for number in range(1, len(members) + count + 1) if number not in taken)
    found = [one if one.number else replace(one, number=next(free)) for one in members]
    names = {one.name for one in found}
    while len(found) < count:
        number = next(free)
        choices = (f"node{word}" for word in (number, *range(1, len(members) + count + 1)))
        name = next(word for word in choices if word not in names)
        names.add(name)
        found.append(Member(name, number))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Node:
    """One node: a machine of its own, made of namespaces, with its own process 1, containerd, agent and proxy."""

    name: str
    addresses: tuple[str, ...]  # one of each IP family of the cluster

    @property
    def address(self) -> str:
        """The address of the first family."""
        return self.addresses[0]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster with its addresses. `root`, the directory of all clusters' state, is not part of its record."""

    name: str
    subnet: str
    options: Options = field(default_factory=Options)
    pod_cidr: str = POD_CIDR
    service_cidr: str = SERVICE_CIDR
    domain: str = CLUSTER_DOMAIN
    tools: Mapping[str, str] = field(default_factory=dict)  # paths of its binaries
    pod_cidr6: str = POD_CIDR6
    service_cidr6: str = SERVICE_CIDR6
    images: str = "demo"  # which the nodes have from the start
    root: str = STATE_ROOT

    @property
    def families(self) -> tuple[int, ...]:
        """IP versions, the first one first."""
        return FAMILIES[self.options.ip_family]

    @property
    def networks(self) -> tuple[IPNetwork, ...]:
        """The nodes' subnets, one for each family."""
        return tuple(map(self.network, self.families))

    def network(self, version: int = 4) -> IPNetwork:
        """The nodes' subnet of one family. The IPv6 one follows from IPv4: 10.89.7.0/24 gives fd00:a59:700::/64."""
        chosen = ipaddress.IPv4Network(self.subnet)
        if version == 4:
            return chosen
        return ipaddress.IPv6Network(((0xFD00 << 112) | (int(chosen.network_address) << 80), 64))

    @property
    def pod_cidrs(self) -> tuple[str, ...]:
        return tuple(self.pod_cidr if version == 4 else self.pod_cidr6 for version in self.families)

    @property
    def service_cidrs(self) -> tuple[str, ...]:
        return tuple(self.service_cidr if version == 4 else self.service_cidr6 for version in self.families)

    @property
    def host_addresses(self) -> tuple[str, ...]:
        """This machine's own addresses on the cluster's wire."""
        return tuple(str(network[1]) for network in self.networks)

    @property
    def host_address(self) -> str:
        return self.host_addresses[0]

    @property
    def router_addresses(self) -> tuple[str, ...]:
        """The wire's addresses, where it is a router (Options.routed)."""
        return tuple(str(network[2]) for network in self.networks)

    @property
    def nodes(self) -> tuple[Node, ...]:
        networks = self.networks
        return tuple(Node(one.name, tuple(str(net[10 + one.number]) for net in networks)) for one in self.members)

    @property
    def members(self) -> tuple[Member, ...]:
        """What is known of each node, in the order of `nodes`."""
        return self.options.all_members

    def member(self, node: str) -> Member:
        """What is known of one node."""
        return next(one for one in self.members if one.name == node)

    @property
    def api_address(self) -> str:
        """Where clients connect: the first node, or the load balancer in front of several control planes."""
        many = self.options.control_planes > 1
        return str(self.networks[0][BALANCER_HOST]) if many else self.nodes[0].address

    @property
    def api_url(self) -> str:
        return f"https://{in_url(self.api_address)}:{API_PORT}"

    @property
    def kubernetes_service(self) -> str:
        return str(ipaddress.ip_network(self.service_cidrs[0])[1])

    @property
    def dns_service(self) -> str:
        return str(ipaddress.ip_network(self.service_cidrs[0])[10])

    @property
    def host_link(self) -> str:
        """The host's end of the veth to the cluster's wire."""
        return f"nw-{self.name}"

    @property
    def cgroup(self) -> str:
        return f"{CGROUP_ROOT}/{self.name}"

    @property
    def dir(self) -> str:
        return posixpath.join(self.root, self.name)

    @property
    def ns_dir(self) -> str:
        return posixpath.join(self.dir, "ns")

    @property
    def pki_dir(self) -> str:
        return posixpath.join(self.dir, "pki")

    @property
    def admin_kubeconfig(self) -> str:
        return posixpath.join(self.dir, "admin.conf")

    @property
    def context(self) -> str:
        """The name of its context, cluster and user in kubeconfig files."""
        return f"nodewright-{self.name}"

    @property
    def control_plane_dir(self) -> str:
        return posixpath.join(self.dir, CONTROL_PLANE)

    def node_dir(self, node: str) -> str:
        return posixpath.join(self.dir, node)

    def namespace(self, space: str, kind: str) -> str:
        """The file that holds a namespace: `space` is "wire" or a node's name, `kind` net or another of KINDS."""
        return posixpath.join(self.ns_dir, f"{space}.{kind}")

    def namespaces(self, node: str) -> dict[str, str]:
        """The files of all namespaces of a node, by kind."""
        return {kind: self.namespace(node, kind) for kind in KINDS}

    def unit_dir(self, unit: str) -> str:
        """The folder with the supervisor's specification and state; `unit` is a node or the control plane."""
        return posixpath.join(self.dir, unit, "supervisor")

    def log_dir(self, unit: str) -> str:
        return posixpath.join(self.dir, unit, "log")

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "root"}

    @classmethod
    def from_json(cls, data: dict[str, Any], root: str = STATE_ROOT) -> Cluster:
        return cls(
            name=data["name"],
            subnet=data["subnet"],
            options=Options.from_json(data["options"]),
            pod_cidr=data["pod_cidr"],
            service_cidr=data["service_cidr"],
            domain=data["domain"],
            tools=data.get("tools") or {},
            pod_cidr6=data.get("pod_cidr6") or POD_CIDR6,
            service_cidr6=data.get("service_cidr6") or SERVICE_CIDR6,
            images=data.get("images") or "demo",
            root=root,
        )
