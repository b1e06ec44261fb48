"""Facts about the machine that clusters run on, as `doctor` reads them."""

from __future__ import annotations

from dataclasses import dataclass, field

NODE_PORTS = (10248, 10250, 10256)  # kubelet health, kubelet API, proxy health


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that the preflight judges; "" or 0 if unknown."""

    root: bool = True
    python: tuple[int, int] = (3, 11)
    kernel: str = ""
    namespaces: str = ""  # why namespaces cannot be made, "" if they can
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
    state_free: int = 0  # bytes free where the state is
    cache_free: int = 0
    state_root: str = ""
    cache_root: str = ""
    bridge_netfilter: bool = True
    missing_tools: tuple[str, ...] = ()
    runc: str = ""
    go: str = ""
    built: bool = False  # the binaries are in the cache
    missing_packages: tuple[str, ...] = ()
    taken_networks: tuple[str, ...] = ()
