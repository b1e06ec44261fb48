"""What is right by itself and wrong together: names, ports, ranges, places for pods. Pure."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterator

from controlplane.config.model import Port, Wanted
from controlplane.config.plan import ranges
from controlplane.config.plan.fields import Path, Problem

_FAMILIES = {"ipv4": (4,), "ipv6": (6,), "dual": (4, 6)}
_RANGES: dict[str, Path] = {
    "nodes": ("networking", "nodeSubnet"),
    "pods": ("networking", "podSubnet"),
    "services": ("networking", "serviceSubnet"),
}
_KEEPS_PODS_AWAY = ("NoSchedule", "NoExecute")


def contradictions(wanted: Wanted) -> list[Problem]:
    """What does not go together in a file whose flags are merged in already."""
    return [*_ports(wanted), *_ranges(wanted), *_nodes(wanted), *_kubeadm(wanted), *_upstream(wanted)]


def _ports(wanted: Wanted) -> Iterator[Problem]:
    for (first, one), (second, two) in itertools.combinations(enumerate(wanted.custom.ports), 2):
        if one.host_port == two.host_port and _same_place(one, two):
            said = f"{two.listen}:{two.host_port} is used already by ports[{first}]"
            yield Problem(("ports", second, "hostPort"), said, "Give another hostPort, or another listenAddress.")
    count = wanted.options.get("nodes", 2)
    names = {one.name for one in wanted.members} or {f"node{number + 1}" for number in range(count)}
    for number, port in enumerate(wanted.custom.ports):
        if port.node and port.node not in names:
            said = f"there is no node {port.node}"
            yield Problem(("ports", number, "node"), said, f"Choose from: {', '.join(sorted(names))}.")


def _same_place(one: Port, two: Port) -> bool:
    first, second = ipaddress.ip_address(one.listen), ipaddress.ip_address(two.listen)
    return first == second or (first.version == second.version and (first.is_unspecified or second.is_unspecified))


def _ranges(wanted: Wanted) -> Iterator[Problem]:
    families = _FAMILIES[wanted.options.get("ip_family", "ipv4")]
    count = max(len(wanted.members), wanted.options.get("nodes", 2))
    for name, text in ranges.problems(wanted.ranges, families, count):
        yield Problem(_RANGES[name], text, "Give another range, or leave this field out.")


def _nodes(wanted: Wanted) -> Iterator[Problem]:
    count = wanted.options.get("nodes", len(wanted.members))
    closed = [one for one in wanted.members if any(taint.effect in _KEEPS_PODS_AWAY for taint in one.taints)]
    if wanted.members and len(closed) == len(wanted.members) >= count:
        said = "every node has a taint that keeps pods away, so that the cluster's DNS has no place"
        yield Problem(("nodes",), said, "Leave one node without such a taint.")


def _kubeadm(wanted: Wanted) -> Iterator[Problem]:
    """kubeadm writes these files itself, and would change them back at its next run."""
    if not wanted.options.get("kubeadm"):
        return
    custom = wanted.custom
    given = {
        "apiServer": custom.api_server,
        "controllerManager": custom.controller_manager,
        "scheduler": custom.scheduler,
        "featureGates": custom.feature_gates,
        "kubelet": custom.kubelet,
    }
    for name, value in given.items():
        if value:
            said = "is not for clusters that kubeadm creates: it writes this configuration itself"
            yield Problem((name,), said, "Leave out `kubeadm`, or this field.")
    for number, member in enumerate(wanted.members):
        if member.kubelet:
            said = "is not for clusters that kubeadm creates: it writes this configuration itself"
            yield Problem(("nodes", number, "kubelet"), said, "Leave out `kubeadm`, or this field.")


def _upstream(wanted: Wanted) -> Iterator[Problem]:
    if wanted.options.get("kubeadm") and (wanted.ranges.pods or wanted.ranges.services):
        said = "is not for clusters that kubeadm creates"
        yield Problem(("networking",), f"podSubnet or serviceSubnet {said}", "Leave them out, or `kubeadm`.")
