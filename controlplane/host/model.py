"""What `join` is asked for, what it knows of the cluster meanwhile, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodelib.kube.access import ClusterAccess


@dataclass(frozen=True, slots=True)
class Addons:
    """DaemonSets of the cluster that replace our pod network and our proxy; "" for none."""

    network: str = ""
    proxy: str = ""


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate of an authority (PEM), with the pin that kubeadm would print for it."""

    pin: str
    pem: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """The options of `join`. `network` and `proxy`: auto, nodewright or none."""

    server: str = ""
    token: str = field(default="", repr=False)
    pins: tuple[str, ...] = ()
    ca_file: str = ""
    skip_verification: bool = False  # of the cluster's authority, with neither a pin nor a file
    kubeconfig: str = ""
    node: str = ""
    node_ip: str = ""
    network: str = "auto"
    proxy: str = "auto"
    cluster_cidr: str = ""
    policies: bool = False  # whether the node enforces network policies, which needs our pod network
    runtime: str = ""  # the socket of a container runtime that runs already; "": containerd, started if none answers
    arguments: tuple[str, ...] = ()  # additional flags of the agent
    project: str = ""
    python: str = ""
    binaries: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of `join`."""

    node: str
    addons: Addons
    network: str
    proxy: str
    policies: bool
    seconds: float


@dataclass(slots=True)
class KnownCluster:
    """What is known of the cluster so far."""

    access: ClusterAccess  # with the bootstrap token
    kubelet: str = ""
    cluster_cidrs: tuple[str, ...] = ()
    addons: Addons | None = None  # None: unknown until the node has registered
