"""Judges the Nodes of a cluster as the API server has them, and each node's routes to the pods of the others. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from controlplane.cluster.advice import kubectl, ours
from controlplane.cluster.model import Cluster
from controlplane.cluster.plan.readiness import NodeState, node_state
from controlplane.doctor.plan.preflight import Finding

_LONGEST = 300  # characters of a condition's message


def registration(cluster: Cluster, objects: Iterable[Mapping[str, Any]] | None, problem: str) -> tuple[Finding, ...]:
    """A finding for each node that gets no pods; `objects`: the Nodes, None when the API server does not answer."""
    if objects is None:
        return (
            Finding(
                f"{cluster.name}: API server",
                "error",
                f"it does not answer: {problem[:_LONGEST]}",
                f"{ours(cluster.name, 'status')} shows which daemon is down;"
                f" {ours(cluster.name, 'up')} starts what is missing",
            ),
        )
    known = {str(one["metadata"]["name"]): one for one in objects}
    found = [_node(cluster, node.name, known.get(node.name)) for node in cluster.nodes]
    bad = tuple(one for one in found if one is not None)
    names = ", ".join(node.name for node in cluster.nodes)
    return bad or (Finding(f"{cluster.name}: nodes", "ok", f"{names} registered and Ready, each with a podCIDR"),)


def _node(cluster: Cluster, name: str, obj: Mapping[str, Any] | None) -> Finding | None:
    check = f"{cluster.name}/{name}: Node"
    log = f"{cluster.log_dir(name)}/agent.log"
    if obj is None:
        return Finding(
            check,
            "error",
            "it is not registered: the API server has no Node of this name, so no pod can run there",
            f"{ours(cluster.name, 'up')} registers it again; if it does not, {log} says why",
        )
    if not (obj.get("spec") or {}).get("podCIDR"):
        return Finding(
            check,
            "error",
            "it has no podCIDR, so its pods get no addresses: kube-controller-manager has given it none",
            f"{ours(cluster.name, 'status')} shows whether kube-controller-manager runs; its log says why, such as that"
            f" {cluster.pod_cidr} is used up",
        )
    state = node_state(dict(obj), given=cluster.member(name).taints)
    if not state.waits_for:
        return None
    if state.taints:
        return Finding(
            check, "warning", f"it takes no ordinary pods: {state.waits_for}", _untaint(cluster, name, state)
        )
    fix = f"{ours(cluster.name, 'status')} shows its daemons; the agent's log is {log}"
    return Finding(check, "error", state.waits_for[:_LONGEST], fix)


def _untaint(cluster: Cluster, node: str, state: NodeState) -> str:
    """Taints that Kubernetes sets by itself go with their cause; the others were set by somebody."""
    ways = []
    for one in state.taints:
        if one.key == "node.kubernetes.io/unschedulable":
            ways.append(kubectl(cluster.name, "uncordon", node))
        elif one.key.startswith("node.kubernetes.io/"):
            ways.append(f"end what {one.key} says ({kubectl(cluster.name, 'describe', 'node', node)} shows it)")
        else:
            ways.append(kubectl(cluster.name, "taint", "nodes", node, f"{one.key}:{one.effect}-"))
    return f"If nobody wants that: {'; '.join(dict.fromkeys(ways))}"


def down(cluster: Cluster, node: str) -> Finding:
    """A node whose namespaces are not there, as after a reboot."""
    fix = f"{ours(cluster.name, 'up')} starts it again"
    return Finding(f"{cluster.name}/{node}: machine", "error", "it is not running: its namespaces are gone", fix)


def pod_ranges(objects: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The ranges of pod addresses by node."""
    found = {}
    for one in objects:
        spec = one.get("spec") or {}
        found[str(one["metadata"]["name"])] = tuple(spec.get("podCIDRs") or filter(None, (spec.get("podCIDR"),)))
    return found


def missing_routes(
    place: str, node: str, routes: Sequence[Mapping[str, Any]], ranges: Mapping[str, Sequence[str]], log: str
) -> tuple[Finding, ...]:
    """A finding for each other node whose pods this node cannot reach; `routes` are those of `ip -json route`."""
    ways = {_network(str(one.get("dst", ""))) for one in routes if one.get("type", "unicast") == "unicast"}
    found = []
    for other, cidrs in sorted(ranges.items()):
        lost = [cidr for cidr in cidrs if other != node and _network(cidr) not in ways]
        if lost:
            found.append(
                Finding(
                    f"{place}: route to {other}",
                    "error",
                    f"there is no route to {', '.join(lost)}: pods of {node} and {other} do not reach each other",
                    f"The agent of {node} sets it again within a minute; if it does not, {log} says why",
                )
            )
    return tuple(found)


def _network(text: str) -> str:
    """In one spelling; `ip` writes no prefix for a single address."""
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        return text
