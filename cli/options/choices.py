"""The values that options of the command line accept."""

from __future__ import annotations

from enum import StrEnum


class ProxyMode(StrEnum):
    """How Services are programmed."""

    IPTABLES = "iptables"
    NFTABLES = "nftables"
    USERSPACE = "userspace"


class IPFamily(StrEnum):
    """Which addresses nodes, pods and Services have."""

    IPV4 = "ipv4"
    IPV6 = "ipv6"
    DUAL = "dual"


class Maker(StrEnum):
    """Whose kubelet or kube-proxy runs on the nodes."""

    NODEWRIGHT = "nodewright"
    UPSTREAM = "upstream"


class Network(StrEnum):
    """Who provides the pod network of a cluster made with kubeadm."""

    NODEWRIGHT = "nodewright"
    KINDNET = "kindnet"


class Release(StrEnum):
    """Minor versions that a control plane can have."""

    CURRENT = "1.37"
    OLDER = "1.36"


class ImageSet(StrEnum):
    """Images that the nodes have without pulling them."""

    DEMO = "demo"
    CONFORMANCE = "conformance"


class Bench(StrEnum):
    """What `bench` measures."""

    PODS = "pods"
    NETWORK = "network"
    SERVICES = "services"
    LISTS = "lists"
    SOAK = "soak"


class Shell(StrEnum):
    """Shells that command lines are completed in."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


class Output(StrEnum):
    """For people or for scripts."""

    TEXT = "text"
    JSON = "json"


class Suite(StrEnum):
    """Which of upstream's test suites."""

    E2E = "e2e"
    NODE = "node"
    NETWORK_POLICY_API = "network-policy-api"
    CYCLONUS = "cyclonus"


class Tier(StrEnum):
    """How much of the conformance suite to run."""

    SMOKE = "smoke"
    DEV = "dev"
    FULL = "full"
