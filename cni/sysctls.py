"""Kernel settings that the pod network needs. Each is read first, and written only if it differs."""

from __future__ import annotations

from collections.abc import Iterable

from cni.edge import sysctl
from cni.model import LinkFacts
from cni.ports import KernelSettings
from nodelib.errors import Permanent

_FORWARD = {4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding"}
_BRIDGED = {4: "net/bridge/bridge-nf-call-iptables", 6: "net/bridge/bridge-nf-call-ip6tables"}


def ensure_forwarding(version: int, links: Iterable[LinkFacts] = (), kernel: KernelSettings = sysctl) -> None:
    """Switch forwarding on, without which the kernel drops every packet that is not for the node. Raises Permanent.

    A forwarding node ignores router advertisements unless a link has accept_ra 2 (kernel documentation, ip-sysctl): a
    machine that got its IPv6 route from one would lose it when the route expires. Links in `links` that pods can send
    through must not be among those.
    """
    if version == 6 and kernel.read(_FORWARD[6]) == "0":
        for link in links:
            name = f"net/ipv6/conf/{_in_path(link.name)}/accept_ra"
            if kernel.read(name) == "1":
                kernel.write(name, "2")
    _ensure(kernel, _FORWARD[version], "1")


def ensure_route_localnet(bridge: str, kernel: KernelSettings = sysctl) -> None:
    """Let 127.0.0.1:hostPort reach a pod. Call it only once rules guard the loopback. Raises Permanent."""
    _ensure(kernel, f"net/ipv4/conf/{_in_path(bridge)}/route_localnet", "1")


def ensure_guarded(bridge: str, kernel: KernelSettings = sysctl) -> str:
    """Let no pod change the node's routes or send as somebody outside. Returns what is still open, "" for nothing.

    A node that does not forward IPv6 would take its default route from a pod's router advertisement (CVE-2020-10749).
    With the reverse path filter, a packet of a pod has an address of this node's pods or is dropped.
    """
    name = _in_path(bridge)
    wanted = {
        f"net/ipv6/conf/{name}/accept_ra": "0",
        f"net/ipv6/conf/{name}/accept_redirects": "0",
        f"net/ipv4/conf/{name}/accept_redirects": "0",
        f"net/ipv4/conf/{name}/rp_filter": "1",
    }
    problems = []
    for setting, value in wanted.items():
        try:
            _ensure(kernel, setting, value)
        except Permanent as error:
            problems.append(str(error))
    return f"pods can mislead this node: {'; '.join(problems)}" if problems else ""


def bridge_filtered(version: int = 4, kernel: KernelSettings = sysctl) -> bool:
    """Whether frames between ports of a bridge pass iptables (br_netfilter), so that answers are translated back."""
    return kernel.read(_BRIDGED[version]) == "1"


def ensure_bridge_filtered(version: int, kernel: KernelSettings = sysctl) -> str:
    """Switch that on. Returns why it is still off, "" when it is on. Only Services between pods of one node need it."""
    name = _BRIDGED[version]
    problem = "this kernel has no br_netfilter (modprobe br_netfilter)"
    try:
        if kernel.read(name) == "0":
            kernel.write(name, "1")
        if kernel.read(name) is not None:
            return ""
    except Permanent as error:
        problem = str(error)
    dotted = name.replace("/", ".")
    return f"{dotted} is not 1: Services do not answer pods on the same node as their endpoint. {problem}"


def _in_path(link: str) -> str:
    """A link's name as a folder of /proc/sys."""
    return link.replace("/", ".")


def _ensure(kernel: KernelSettings, name: str, value: str) -> None:
    if kernel.read(name) not in (value, None):
        kernel.write(name, value)
