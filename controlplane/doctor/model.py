"""Facts about the machine that clusters run on, and about the daemons of a node, as `doctor` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NODE_PORTS = (10248, 10250, 10256)  # kubelet health, kubelet API, proxy health


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that the preflight judges; "" or 0 if unknown."""

    root: bool = True
    python: tuple[int, int] = (3, 11)
    kernel: str = ""
    namespaces: str = ""  # why namespaces cannot be made, "" if they can
    chroot: bool = False  # whether / is not the root of the mount namespace
    kernel_features: dict[str, str] = field(default_factory=dict)  # feature -> why it is missing, "" if it is there
    iptables: str = ""  # version line
    foreign_rules: int = 0  # rules in the other iptables backend
    cgroup_mode: str = ""
    controllers: frozenset[str] = frozenset()
    may_lower_oom_score: bool = True
    inotify_instances: int = 0
    inotify_watches: int = 0
    inotify_used: int = 0  # instances that root has open
    ports_taken: tuple[int, ...] = ()  # of NODE_PORTS, by this machine's own listeners
    memory: int = 0  # bytes available
    swap: int = 0  # bytes in use
    load: float = 0.0  # processes that ran or waited, in the last minute
    cpus: int = 1
    state_free: int = 0  # bytes free where the state is
    cache_free: int = 0
    state_root: str = ""
    cache_root: str = ""
    bridge_netfilter: bool = True
    missing_tools: tuple[str, ...] = ()
    go: str = ""
    built: bool = False  # the binaries are in the cache
    missing_packages: tuple[str, ...] = ()
    taken_networks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file as it is: permission bits and owner, or why it could not be read."""

    path: str
    mode: int = 0
    uid: int = 0
    gid: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ProxyFacts:
    """A running kube-proxy. `in_pod`: of a DaemonSet, its files come from a ConfigMap and its ServiceAccount.

    `metrics`: the configured address of its metrics. `listening`: the addresses that really listen on that port.
    `problem`: why its configuration could not be read.
    """

    kubeconfigs: tuple[FileFact, ...] = ()
    in_pod: bool = False
    metrics: str = "127.0.0.1:10249"
    listening: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the CIS benchmark judges of a node. `flags`: of the running kubelet, by name without dashes.

    `configuration` is its KubeletConfiguration with flags and defaults, read from `source`; `unknown` says why there is
    none. `starts` are the files that start it: unit files, or the specification of a supervisor.
    """

    node: str
    flags: Mapping[str, str]
    configuration: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    unknown: str = ""
    starts: tuple[FileFact, ...] = ()
    kubeconfig: tuple[FileFact, ...] = ()
    configs: tuple[FileFact, ...] = ()
    authorities: tuple[FileFact, ...] = ()
    serving: tuple[FileFact, ...] = ()  # the self-signed pair in --cert-dir, or the pair that the cluster issued
    proxy: ProxyFacts | None = None
