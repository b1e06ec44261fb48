"""Judges the pod network of this machine or of one node: what blocks, drops or slows packets. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.cluster.advice import kubectl
from controlplane.doctor.plan.preflight import Finding

_BRIDGE, _OVERLAY, _UPLINK = "nw0", "nwvx0", "eth0"
_OVERHEAD = 50  # bytes of VXLAN over IPv4; over IPv6 it is 70
_NEARLY_FULL = 0.9
_ENOUGH_QUESTIONS, _TOO_MANY = 500, 3.0

_COREDNS_LOG = "`kubectl -n kube-system logs deploy/coredns`"
Said = tuple[str, str] | None  # what was found and how to fix it; None: nothing is wrong


@dataclass(frozen=True, slots=True)
class Link:
    """A network link; `rp_filter` is text, "" if unknown."""

    name: str
    kind: str = ""
    mtu: int = 0
    master: str = ""
    rp_filter: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """The facts that edge.pod_network read. `uplink` is the link of the default route, or eth0."""

    name: str
    links: Mapping[str, Link] = field(default_factory=dict)
    uplink: str = _UPLINK
    sysctls: Mapping[str, str] = field(default_factory=dict)
    conntrack: Mapping[str, int] = field(default_factory=dict)
    foreign: int = 0  # rules in the backend that the node does not use
    forward: str = ""  # iptables -S FORWARD
    dns: Mapping[str, int] = field(default_factory=dict)  # answers of CoreDNS by code
    cluster: str = ""  # of this machine; "" for a node of another one

    def sysctl(self, name: str) -> int:
        value = self.sysctls.get(name, "")
        return int(value) if value.isdigit() else 0


def place(name: str, seen: Mapping[str, Any], cluster: str = "") -> Place:
    """The output of edge.pod_network as a Place."""
    links = {item["name"]: Link(**item) for item in seen["links"]}
    words = str(seen["default_link"]).split()
    nft, legacy = seen["rules"]["nft"], seen["rules"]["legacy"]
    if nft["own"] or legacy["own"]:
        foreign = nft["all"] if legacy["own"] > nft["own"] else legacy["all"]
    else:
        foreign = min(nft["all"], legacy["all"])
    return Place(
        name,
        links,
        words[words.index("dev") + 1] if "dev" in words else _UPLINK,
        seen["sysctls"],
        seen["conntrack"],
        foreign,
        seen["forward"],
        seen["dns"],
        cluster,
    )


def has_pods(here: Place) -> bool:
    """Whether the node has its pod network; without one there is nothing to check."""
    return _BRIDGE in here.links


def check(here: Place) -> tuple[Finding, ...]:
    """Run every check; there is nothing to check where the node has no pod network yet."""
    if not has_pods(here):
        return (Finding(f"{here.name}: pod network", "ok", f"no {_BRIDGE} here"),)
    found = []
    for name, judge in _CHECKS.items():
        said = judge(here)
        if said is not None:
            found.append(Finding(f"{here.name}: {name}", "warning", *said))
    return tuple(found) or (Finding(f"{here.name}: pod network", "ok", _summary(here)),)


def _summary(here: Place) -> str:
    overlay = here.links.get(_OVERLAY)
    way = f"VXLAN, MTU {overlay.mtu}" if overlay else "routes"
    used = f"{here.sysctl('net.netfilter.nf_conntrack_count')} of {here.sysctl('net.netfilter.nf_conntrack_max')}"
    return f"MTU {here.links[_BRIDGE].mtu}, other nodes by {way}, {used} conntrack entries"


def _forwarding(here: Place) -> Said:
    if here.sysctl("net.ipv4.ip_forward"):
        return None
    return "net.ipv4.ip_forward is 0: every packet from or to a pod is dropped", "sysctl -w net.ipv4.ip_forward=1"


def _bridged(here: Place) -> Said:
    if here.sysctls.get("net.bridge.bridge-nf-call-iptables", "1") == "1":
        return None
    return (
        "bridge-nf-call-iptables is not 1: a Service does not answer pods of the node that its endpoint is on",
        "modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1",
    )


def _mtu(here: Place) -> Said:
    bridge, overlay = here.links[_BRIDGE], here.links.get(_OVERLAY)
    uplink = here.links.get(here.uplink)
    fits = uplink.mtu if uplink else bridge.mtu
    if overlay is not None:
        fits = min(fits - _OVERHEAD, overlay.mtu)
    fix = "The agent sets it every minute: its log says why it could not; a pod made by hand must be made again"
    if bridge.mtu > fits:
        return f"pods have MTU {bridge.mtu}, {fits} fit: connections open, then large answers hang", fix
    other = sorted(link.name for link in here.links.values() if link.master == _BRIDGE and link.mtu != bridge.mtu)
    if other:
        return f"{', '.join(other[:5])} differ from {_BRIDGE}'s MTU {bridge.mtu}", fix
    return None


def _rp_filter(here: Place) -> Said:
    # The kernel uses the larger value of `all` and the link (ip-sysctl, rp_filter); 1 is strict.
    everywhere = here.sysctl("net.ipv4.conf.all.rp_filter")
    # The pod network itself makes its bridge strict, so that no pod sends with another's address.
    names = (_OVERLAY, here.uplink)
    values = {name: here.links[name].rp_filter for name in names if name in here.links}
    strict = [name for name, value in values.items() if max(everywhere, int(value) if value.isdigit() else 0) == 1]
    if not strict:
        return None
    names_text = ", ".join(strict)
    return (
        f"strict on {names_text}: an answer that takes another way back (NodePort, several uplinks) is dropped",
        " ".join(f"sysctl -w {shlex.quote(f'net.ipv4.conf.{name}.rp_filter=2')}" for name in ("all", *strict)),
    )


def _policy(here: Place) -> Said:
    if "-P FORWARD DROP" not in here.forward or "NODEWRIGHT-FORWARD" in here.forward:
        return None
    return (
        "iptables' FORWARD policy is DROP, and nftables rules cannot override it: pods reach nothing outside the node",
        f"iptables -A FORWARD -i {_BRIDGE} -j ACCEPT; iptables -A FORWARD -o {_BRIDGE} -j ACCEPT"
        " (or the proxy's iptables mode, whose pod network does that itself)",
    )


def _foreign(here: Place) -> Said:
    if not here.foreign:
        return None
    return (
        f"{here.foreign} rules in the iptables backend that the node does not use: they filter, and are not listed",
        "Compare iptables-nft-save and iptables-legacy-save; remove them there, or start everything with one backend",
    )


def _full(here: Place) -> Said:
    count, most = (here.sysctl(f"net.netfilter.nf_conntrack_{name}") for name in ("count", "max"))
    dropped = here.conntrack.get("drop", 0)
    if not (most and count >= most * _NEARLY_FULL) and not dropped:
        return None
    return (
        f"{count} of {most} conntrack entries in use, {dropped} packets dropped for want of one: new connections fail",
        f"sysctl -w net.netfilter.nf_conntrack_max={max(most, 65536) * 2} (from the first network namespace)",
    )


def _raced(here: Place) -> Said:
    raced = here.conntrack.get("insert_failed", 0)
    if raced < 10:
        return None
    return (
        f"{raced} packets lost a race for a conntrack entry: of DNS questions (A and AAAA at once) that is a 5 s wait",
        "Give such pods dnsConfig options single-request-reopen or use-vc; see kubernetes/kubernetes#56903",
    )


def _amplified(here: Place) -> Said:
    unknown, answered = here.dns.get("NXDOMAIN", 0), here.dns.get("NOERROR", 0)
    failed = here.dns.get("SERVFAIL", 0)
    total = unknown + answered + failed
    if total < _ENOUGH_QUESTIONS:
        return None
    if failed > total * 0.05:
        words = ("logs", "deploy/coredns")
        log = kubectl(here.cluster, *words, namespace="kube-system") if here.cluster else _COREDNS_LOG
        return (
            f"CoreDNS answered SERVFAIL to {failed} of {total} questions",
            f"{log}: its servers in /etc/resolv.conf do not answer",
        )
    if unknown < answered * _TOO_MANY:
        return None
    return (
        f"{total / max(answered, 1):.1f} DNS questions for each answer: ndots:5 tries every search domain first",
        'End names with a dot, or give those pods dnsConfig {"options": [{"name": "ndots", "value": "2"}]}',
    )


_CHECKS: Mapping[str, Callable[[Place], Said]] = {
    "forwarding": _forwarding,
    "bridge netfilter": _bridged,
    "MTU": _mtu,
    "reverse path filter": _rp_filter,
    "FORWARD policy": _policy,
    "other iptables backend": _foreign,
    "conntrack table": _full,
    "conntrack races": _raced,
    "DNS": _amplified,
}
