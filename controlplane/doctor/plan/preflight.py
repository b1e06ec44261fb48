"""Judges a machine: all checks at once, each finding with its fix. Fatal findings stop `up`. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Literal

from controlplane.cluster.model import POD_CIDR, SERVICE_CIDR
from controlplane.doctor.model import NODE_PORTS, Machine

GIB = 1024**3
Level = Literal["ok", "warning", "error", "fatal"]  # error: something of a cluster is broken; fatal: `up` cannot work
_NEEDED_CONTROLLERS = ("cpu", "memory", "pids")
_MIN_INOTIFY_INSTANCES, _MIN_INOTIFY_WATCHES = 128, 8192
_ENOUGH_INOTIFY_INSTANCES, _ENOUGH_INOTIFY_WATCHES = 1024, 65536
# For two nodes: agent, containerd and proxy have a few each, CoreDNS one; the rest is for pods that watch files.
_FREE_INOTIFY_INSTANCES = 32
_NO_MOUNT_POINT = "cannot change root filesystem propagation"  # unshare's words
_STATE_BYTES, _CACHE_BYTES_COLD = 2 * GIB, 9 * GIB
_MEMORY_BYTES = int(1.5 * GIB)
_BUSY = 8.0  # processes that want each CPU


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: its name, what was found, and how to fix it."""

    check: str
    level: Level
    found: str
    fix: str = ""


def preflight(machine: Machine) -> tuple[Finding, ...]:
    """All checks, in reading order."""
    return (
        _root(machine),
        _python(machine),
        _namespaces(machine),
        *_features(machine),
        _iptables(machine),
        _foreign(machine),
        _bridge(machine),
        _cgroups(machine),
        _oom(machine),
        _inotify(machine),
        _ports(machine),
        _memory(machine),
        _swap(machine),
        _load(machine),
        _disk("disk for the cluster", machine.state_root, machine.state_free, _STATE_BYTES),
        _disk(
            "disk for the cache", machine.cache_root, machine.cache_free, GIB if machine.built else _CACHE_BYTES_COLD
        ),
        _tools(machine),
        _packages(machine),
        _go(machine),
        _ranges(machine),
    )


def fatal(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Those that no cluster can be raised with."""
    return tuple(finding for finding in findings if finding.level == "fatal")


def warnings(findings: tuple[Finding, ...]) -> str:
    """Which checks warn, for a line of progress; "" when none does."""
    named = ", ".join(finding.check for finding in findings if finding.level == "warning")
    return f"a warning about {named}: `./nodewright doctor` says more" if named else ""


def _root(m: Machine) -> Finding:
    if m.root:
        return Finding("root", "ok", "yes")
    return Finding("root", "fatal", "no: namespaces, bridges and cgroups need it", "sudo ./nodewright …")


def _python(m: Machine) -> Finding:
    version = ".".join(str(part) for part in m.python)
    if m.python >= (3, 11):
        return Finding("python", "ok", version)
    return Finding("python", "fatal", f"{version}: 3.11 or newer is needed", "apt-get install python3.11")


def _namespaces(m: Machine) -> Finding:
    if not m.namespaces:
        return Finding("namespaces", "ok", "network, mount, UTS, IPC, PID and cgroup")
    return Finding(
        "namespaces",
        "fatal",
        m.namespaces,
        "A container needs --privileged; a kernel CONFIG_NET_NS, CONFIG_UTS_NS, CONFIG_IPC_NS and CONFIG_PID_NS",
    )


def _features(m: Machine) -> list[Finding]:
    fixes = {
        "veth": "modprobe veth (CONFIG_VETH)",
        "bridge": "modprobe bridge (CONFIG_BRIDGE)",
        "overlayfs": "modprobe overlay (CONFIG_OVERLAY_FS)",
        "conntrack": "modprobe nf_conntrack nf_conntrack_netlink (CONFIG_NF_CONNTRACK)",
        "iptables nat": "modprobe iptable_nat, or nf_tables and nft_compat (CONFIG_NF_NAT)",
    }
    if m.chroot or any(_NO_MOUNT_POINT in why for why in m.kernel_features.values()):
        words = "/ is that of a chroot: nodes, with mount namespaces of their own, would begin in another root folder"
        return [Finding("root folder", "fatal", words, "Use a virtual machine, or a container with --privileged")]
    return [
        Finding(name, "fatal" if why else "ok", why or "there", fixes.get(name, "") if why else "")
        for name, why in m.kernel_features.items()
    ]


def _iptables(m: Machine) -> Finding:
    if m.iptables:
        return Finding("iptables", "ok", m.iptables)
    return Finding("iptables", "fatal", "not there: Services are iptables rules", "apt-get install iptables")


def _foreign(m: Machine) -> Finding:
    if not m.foreign_rules:
        return Finding("other iptables backend", "ok", "empty")
    return Finding(
        "other iptables backend",
        "warning",
        f"{m.foreign_rules} rules: both backends filter packets, and only one of them is listed",
        "Look with iptables-legacy-save and iptables-nft-save; the cluster's own namespaces are not affected",
    )


def _bridge(m: Machine) -> Finding:
    if m.bridge_netfilter:
        return Finding("bridge netfilter", "ok", "there")
    return Finding(
        "bridge netfilter",
        "warning",
        "net.bridge.bridge-nf-call-iptables is missing: a Service does not answer its own node's pods",
        "modprobe br_netfilter",
    )


def _cgroups(m: Machine) -> Finding:
    missing = [name for name in _NEEDED_CONTROLLERS if name not in m.controllers]
    if not missing:
        return Finding("cgroups", "ok", f"{m.cgroup_mode}, {len(m.controllers)} controllers")
    return Finding(
        "cgroups",
        "fatal",
        f"{m.cgroup_mode or 'none mounted'}: no {', '.join(missing)}",
        "Boot with cgroup_enable=memory, or mount -t cgroup2 none /sys/fs/cgroup",
    )


def _oom(m: Machine) -> Finding:
    if m.may_lower_oom_score:
        return Finding("oom_score_adj", "ok", "may be lowered")
    return Finding(
        "oom_score_adj",
        "ok",
        "may not be lowered (no CAP_SYS_RESOURCE): containerd runs with restrict_oom_score_adj",
    )


def _inotify(m: Machine) -> Finding:
    found = f"{m.inotify_used} of {m.inotify_instances} instances in use by root, {m.inotify_watches} watches"
    free = m.inotify_instances - m.inotify_used
    if free < _FREE_INOTIFY_INSTANCES:
        short = f"{found}: {max(free, 0)} left, the next cluster or pod may fail with 'too many open files'"
        return Finding("inotify", "warning", short, _more_inotify(m))
    if m.inotify_instances >= _MIN_INOTIFY_INSTANCES and m.inotify_watches >= _MIN_INOTIFY_WATCHES:
        return Finding("inotify", "ok", found)
    return Finding(
        "inotify",
        "warning",
        f"{found}: pods that watch files may fail with 'too many open files'",
        _more_inotify(m),
    )


def _more_inotify(m: Machine) -> str:
    """It never lowers what the machine has: then pods that run would lack it."""
    instances = max(_ENOUGH_INOTIFY_INSTANCES, 2 * m.inotify_instances)
    wanted = [f"fs.inotify.max_user_instances={instances}"]
    if m.inotify_watches < _ENOUGH_INOTIFY_WATCHES:
        wanted.append(f"fs.inotify.max_user_watches={_ENOUGH_INOTIFY_WATCHES}")
    return f"sysctl -w {' '.join(wanted)}"


def _ports(m: Machine) -> Finding:
    if not m.ports_taken:
        return Finding("ports", "ok", f"{', '.join(map(str, NODE_PORTS))} are free")
    taken = ", ".join(map(str, m.ports_taken))
    return Finding("ports", "ok", f"{taken} taken by another kubelet or proxy: `up` does not need them, `join` does")


def _memory(m: Machine) -> Finding:
    found = f"{m.memory / GIB:.1f} GiB available"
    if m.memory >= _MEMORY_BYTES:
        return Finding("memory", "ok", found)
    return Finding("memory", "warning", f"{found}: the control plane alone takes 0.6 GiB", "Free some, or --nodes 1")


def _swap(m: Machine) -> Finding:
    if not m.swap:
        return Finding("swap", "ok", "not in use")
    return Finding(
        "swap", "warning", f"{m.swap / GIB:.1f} GiB in use: memory limits of pods are then soft", "swapoff -a"
    )


def _load(m: Machine) -> Finding:
    found = f"load {m.load:.1f} on {m.cpus} CPU{'s' * (m.cpus != 1)}"
    if m.load < _BUSY * m.cpus:
        return Finding("load", "ok", found)
    slow = f"{found}: nodes and pods start slowly, and what waits for them may give up"
    fix = "Wait until the machine's other work has ended, which `top` names, or add CPUs"
    return Finding("load", "warning", slow, fix)


def _disk(check: str, path: str, free: int, wanted: int) -> Finding:
    found = f"{free / GIB:.1f} GiB free at {path}"
    if free >= wanted:
        return Finding(check, "ok", found)
    level: Level = "fatal" if free < wanted / 4 else "warning"
    variable = "NODEWRIGHT_CACHE" if "cache" in check else "NODEWRIGHT_STATE"
    return Finding(
        check, level, f"{found}, {wanted / GIB:.0f} GiB wanted", f"Free some space, or set {variable} to another disk"
    )


def _tools(m: Machine) -> Finding:
    if not m.missing_tools:
        return Finding("tools", "ok", "all there")
    return Finding(
        "tools", "fatal", f"missing: {', '.join(m.missing_tools)}", "apt-get install util-linux mount iproute2"
    )


def _packages(m: Machine) -> Finding:
    if not m.missing_packages:
        return Finding("Debian packages", "ok", "all there")
    names = " ".join(m.missing_packages)
    return Finding("Debian packages", "warning", f"missing: {names}", f"apt-get install {names}")


def _go(m: Machine) -> Finding:
    if m.built:
        return Finding("Go", "ok", "not needed: the binaries are built, or in a release")
    if m.go:
        return Finding("Go", "ok", m.go)
    return Finding("Go", "warning", "not there: it is downloaded for the build", "")


def _ranges(m: Machine) -> Finding:
    for text in m.taken_networks:
        network = ipaddress.ip_interface(text).network
        for name, cidr in (("pods", POD_CIDR), ("services", SERVICE_CIDR)):
            if isinstance(network, ipaddress.IPv4Network) and network.overlaps(ipaddress.IPv4Network(cidr)):
                return Finding(
                    "address ranges",
                    "warning",
                    f"{network} of this machine overlaps {cidr} of the {name}: pods cannot reach it",
                    "The cluster still works: it has its own namespaces",
                )
    return Finding("address ranges", "ok", f"pods {POD_CIDR} and services {SERVICE_CIDR} are free")
