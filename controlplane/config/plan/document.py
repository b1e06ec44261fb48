"""The declaration of the file: every field, what it may be, and what it is for. Reader and schema follow from it."""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from controlplane.config.model import API_VERSION, KIND
from controlplane.config.plan import kubelet
from controlplane.config.plan.arguments import argument_problem
from controlplane.config.plan.fields import (
    Either,
    Field,
    Free,
    Names,
    Path,
    Problem,
    Sequence,
    Switch,
    Table,
    Text,
    Whole,
    matches,
)
from loadbalancer.plan import pool
from nodelib import quantity
from nodelib.errors import Invalid

LEAST_MEMORY = 512 << 20  # bytes of a node
MOST_NODES = 20
ADDONS = ("ingress", "metrics")
# Folders and links of the cluster's own folder and of its wire; a node's name is that of a link, too (IFNAMSIZ).
_TAKEN = ("balancer", "br0", "control-plane", "host", "lo", "ns", "pki", "ports", "wire")
_NODE_NAME = matches(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", "is not 1 to 15 of a-z, 0-9 and '-', first and last no '-'", 15)
_LABEL_NAME = matches(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", "is not the name of a label", 63)
_DOMAIN = matches(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", "is not a DNS name before the '/'")
_LABEL_VALUE = matches(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", "is not the value of a label", 63)
_CLUSTER_NAME = matches(
    r"[a-z]([-a-z0-9]{0,10}[a-z0-9])?", "is not 1 to 12 of a-z, 0-9 and '-', first a letter, last no '-'", 12
)
_GATE = matches(r"[A-Z][A-Za-z0-9]*", "is not the name of a feature gate", 100)
_HOST = matches(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?", "is not a host name of a registry")
_ENVIRONMENT = matches(r"[A-Za-z_][A-Za-z0-9_]*", "is not the name of an environment variable")
# What makes a node work: its own mounts, its system's folders (which may be links), and what the kernel shows there.
_NO_MOUNTS = ("bin", "dev", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "proc", "run", "sbin", "sys")
_NODES_OWN = ("/", "/etc", "/opt", "/usr", "/var", "/var/lib", "/var/log", "/var/lib/kubelet", "/var/lib/containerd")


def _node_name(text: str) -> str:
    return "is the name of something else in a cluster" if text in _TAKEN else _NODE_NAME(text)


def _label_key(text: str) -> str:
    domain, slash, name = text.rpartition("/")
    return _LABEL_NAME(name) or (_DOMAIN(domain) if slash else "")


def _address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return "is not an IP address"
    return ""


def _cidrs(text: str) -> str:
    try:
        for one in text.split(","):
            ipaddress.ip_network(one.strip())
    except ValueError as error:
        return f"is not a range of addresses ({error})"
    return ""


def _pool(text: str) -> str:
    try:
        pool.parse([text])
    except Invalid as error:
        return f"is not a pool ({error.message})"
    return ""


def _absolute(text: str) -> str:
    if "\0" in text or not text.startswith("/") or posixpath.normpath(text) != text or text.startswith("//"):
        return "is not an absolute path without '..' and with no '/' at its end"
    return ""


def _node_path(text: str) -> str:
    if reason := _absolute(text):
        return reason
    first = text.split("/")[1]
    if first in _NO_MOUNTS or text in _NODES_OWN or text.startswith(("/var/run", "/var/lock")):
        return "is a place that the node needs for itself"
    return ""


def _host_path(text: str) -> str:
    return "" if text == "/" else _absolute(text)


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and text.isprintable()
    except ValueError:
        good = False
    if not good or any(char in text for char in " \"'\\"):
        return "is not a URL"
    return "holds a login, which belongs under `login`" if parts.username or parts.password else ""


def _size(text: str) -> str:
    try:
        found = quantity.value(text)
    except (Invalid, ValueError):
        return "is not a quantity"
    return "" if found >= LEAST_MEMORY else "is too little: a node's daemons alone use about 200Mi, and it needs 512Mi"


def _login(value: Mapping[str, Any], path: Path) -> list[Problem]:
    if bool(value.get("passwordFile")) != bool(value.get("passwordEnv")):
        return []
    said = "needs the place of its password" if not value.get("passwordFile") else "has two places for one password"
    return [Problem(path, said, "Give either `passwordFile: FILE` or `passwordEnv: VARIABLE`.")]


_LABELS = Names(Text("text, as in quotes", problem=_LABEL_VALUE), "label", _label_key)
_CPUS = Field(Whole(0, 4096), "CPUs of the node; 0: all of this machine's.")
_MEMORY = Field(Text("a size such as 4Gi", problem=_size), "Memory of the node, such as 4Gi.")
_KUBELET = Field(Free(kubelet.problems), "A merge patch of the node's KubeletConfiguration (kubelet.config.k8s.io).")
_MAKER = Text("whose it is", ("nodewright", "upstream"))
_TAINT = Table(
    {
        "key": Field(Text("the key of a taint", problem=_label_key), "The key of the taint.", required=True),
        "value": Field(Text("text, as in quotes", problem=_LABEL_VALUE), "The value of the taint."),
        "effect": Field(
            Text("an effect", ("NoSchedule", "PreferNoSchedule", "NoExecute")), "What it does to pods.", required=True
        ),
    }
)
_MOUNT = Table(
    {
        "hostPath": Field(Text("an absolute path", problem=_host_path), "A folder or file of this machine.", True),
        "nodePath": Field(Text("an absolute path", problem=_node_path), "Where the node sees it.", required=True),
        "readOnly": Field(Switch(), "Whether the node may only read it."),
    }
)
NODE = Table(
    {
        "name": Field(Text("the name of a node", problem=_node_name), "The node's name.", required=True),
        "labels": Field(_LABELS, "Labels of the Node."),
        "taints": Field(Sequence(_TAINT, ("key", "effect")), "Taints of the Node, there before its first pod."),
        "cpus": _CPUS,
        "memory": _MEMORY,
        "mounts": Field(Sequence(_MOUNT, ("nodePath",)), "Folders and files of this machine that the node sees."),
        "kubelet": _KUBELET,
    }
)
_PORT = Table(
    {
        "hostPort": Field(Whole(1, 65535), "The TCP port of this machine.", required=True),
        "nodePort": Field(Whole(1, 65535), "The port of the nodes, such as a Service's nodePort.", required=True),
        "listenAddress": Field(
            Text("an IP address", problem=_address), "The address of this machine; by default 127.0.0.1."
        ),
        "node": Field(Text("the name of a node", problem=_NODE_NAME), "Only this node; by default all in turn."),
    }
)
_MIRROR = Table(
    {
        "url": Field(Text("a URL such as https://mirror.example:5000", problem=_url), "Where it is.", required=True),
        "caFile": Field(Text("an absolute path", problem=_absolute), "PEM file of the authority that signed for it."),
        "skipVerify": Field(Switch(), "Whether its certificate is not verified."),
    }
)
_LOGIN = Table(
    {
        "username": Field(Text("a name", problem=matches(r"[^\s\"'\\]+", "is not a name")), "The user.", required=True),
        "passwordFile": Field(Text("an absolute path", problem=_absolute), "The file that holds the password."),
        "passwordEnv": Field(Text("a variable", problem=_ENVIRONMENT), "The environment variable that holds it."),
    },
    _login,
)
_REGISTRY = Table(
    {
        "host": Field(Text("a host such as docker.io", problem=_HOST), "The registry, as in image names.", True),
        "mirrors": Field(Sequence(_MIRROR, ("url",)), "Where its images are looked for first, in this order."),
        "login": Field(_LOGIN, "How the nodes log in to it."),
    }
)
_NETWORKING = Table(
    {
        "ipFamily": Field(Text("a family", ("ipv4", "ipv6", "dual")), "Addresses of nodes, pods and Services."),
        "proxyMode": Field(Text("a mode", ("iptables", "nftables", "userspace")), "How the proxy programs Services."),
        "networkPolicy": Field(Switch(), "Whether the nodes enforce NetworkPolicies; by default they do."),
        "loadBalancer": Field(Switch(), "Whether Services of type LoadBalancer get addresses; by default they do."),
        "loadBalancerPool": Field(
            Text("ranges of addresses", problem=_pool), "These addresses; by default the last quarter of nodeSubnet."
        ),
        "routed": Field(Switch(), "Each node on its own network behind a router; pods connect by VXLAN."),
        "uplink": Field(Switch(), "Whether pods reach the network of this machine."),
        "nodeSubnet": Field(Text("a CIDR", problem=_cidrs), "Subnet of the nodes; by default a free /24 of 10.89/16."),
        "podSubnet": Field(Text("a CIDR", problem=_cidrs), "Range of the pods; with two families two, by a comma."),
        "serviceSubnet": Field(Text("a CIDR", problem=_cidrs), "Range of the Services; likewise."),
    }
)
_KUBEADM = Table(
    {
        "controlPlanes": Field(Whole(1, 7), "How many nodes run the control plane."),
        "joined": Field(Whole(0, MOST_NODES), "How many of the last nodes join by `nodewright join`."),
        "network": Field(Text("a pod network", ("nodewright", "kindnet")), "The pod network."),
    }
)


def _arguments(program: str) -> Field:
    value = Either(
        Text("text"), Either(Switch(), Whole(-(1 << 63), (1 << 63) - 1), lambda x: isinstance(x, bool)), _str
    )
    table = Table({"args": Field(Names(value, "flag", argument_problem(program)), "Flags by name, without '--'.")})
    return Field(table, f"Flags of {program}, besides or instead of its own.")


def _str(value: Any) -> bool:
    return isinstance(value, str) or not isinstance(value, bool | int)


def _is_whole(value: Any) -> bool:
    return not isinstance(value, list)


DOCUMENT = Table(
    {
        "apiVersion": Field(Text("the version", (API_VERSION,)), "The version of this format.", required=True),
        "kind": Field(Text("the kind", (KIND,)), "What the file describes.", required=True),
        "name": Field(Text("a name", problem=_CLUSTER_NAME), "The name of the cluster; by default nodewright."),
        "kubernetes": Field(Text("a version in quotes", ("1.36", "1.37")), "Version of the control plane."),
        "nodes": Field(
            Either(Whole(1, MOST_NODES), Sequence(NODE, ("name",), 1, MOST_NODES), _is_whole),
            "How many nodes, or a list of them. The first one holds the control plane.",
        ),
        "cpus": Field(Whole(0, 4096), "CPUs of each node; 0: all of this machine's."),
        "memory": Field(_MEMORY.kind, "Memory of each node, such as 4Gi; by default all of this machine's."),
        "kubelet": Field(_KUBELET.kind, "A merge patch of the KubeletConfiguration of every node."),
        "agent": Field(_MAKER, "Whose kubelet runs on the nodes."),
        "proxy": Field(_MAKER, "Whose kube-proxy runs on the nodes."),
        "networking": Field(_NETWORKING, "Address families, ranges and links."),
        "kubeadm": Field(_KUBEADM, "Create the cluster with kubeadm; `{}` for its defaults."),
        "ports": Field(Sequence(_PORT, ("listenAddress", "hostPort")), "TCP ports of this machine that lead to nodes."),
        "apiServer": _arguments("kube-apiserver"),
        "controllerManager": _arguments("kube-controller-manager"),
        "scheduler": _arguments("kube-scheduler"),
        "featureGates": Field(Names(Switch(), "feature gate", _GATE), "Feature gates of all components."),
        "registries": Field(Sequence(_REGISTRY, ("host",)), "Mirrors and logins of registries."),
        "addons": Field(Sequence(Text("the name of an add-on", ADDONS)), "Add-ons besides DNS: metrics, ingress."),
        "storage": Field(Switch(), "Whether the nodes provide volumes for claims; by default they do not."),
        "demo": Field(Switch(), "Deploy a web server on every node, and check that it answers."),
        "durable": Field(Switch(), "Have etcd and containerd flush their writes to disk."),
        "images": Field(Text("a set", ("demo", "conformance")), "Images that the nodes have from the start."),
        "binaries": Field(Text("an absolute path", problem=_absolute), "Use the binaries in this directory."),
    }
)
