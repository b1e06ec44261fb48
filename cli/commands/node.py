"""`nodewright node add` and `node remove`: the nodes of a living cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from typing import Any

from cli.clusters import find, reachable, refuse_if_stopped
from cli.commands.up import memory_size
from cli.display.quiet import note
from cli.display.steps import Display
from cli.errors import need_root
from cli.project import PROJECT
from controlplane.cluster.advice import ours
from controlplane.cluster.model import Cluster, numbered
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.plan.removal import check_removable
from controlplane.cluster.work import node_removal
from controlplane.config.model import Member, Taint
from controlplane.config.plan.document import MOST_NODES, NODE
from controlplane.config.plan.fields import path_text
from controlplane.up.request import Request
from controlplane.up.work import up
from nodelib.clock import SystemClock
from nodelib.errors import Conflict, Invalid, WrongUsage

_STEP = "add a node"


def add(cluster: str, node: str, *, labels: str, taints: str, cpus: int, memory: str, plain: bool) -> None:
    """Add a node and wait until it is Ready."""
    need_root("node")
    known = reachable(cluster)
    size = memory_size(memory) if memory else 0
    member = new_member(known, node, labels=labels, taints=taints)
    options = with_member(known, replace(member, cpus=cpus, memory=size))
    request = Request(
        name=cluster,
        options=options,
        explicit=frozenset({"members", "nodes"}),
        project=str(PROJECT),
        python=sys.executable,
        environment=os.environ,
    )
    display = Display(plain=plain or None)
    with display:
        made = asyncio.run(up(request, display, SystemClock())).cluster
    there = made.nodes[-1]
    note(f"\nNode {there.name} of {cluster} is Ready at {there.address} ({display.elapsed:.1f} s).")


def new_member(known: Cluster, node: str, *, labels: str, taints: str) -> Member:
    """What was asked for, checked as a node of a file is. Raises Invalid."""
    given: dict[str, Any] = {
        "name": node or numbered(known.members, known.options.nodes + 1)[-1].name,
        "labels": dict(_pair(one, "--labels", "key=value") for one in labels.split(",") if one),
        "taints": [_taint(one) for one in taints.split(",") if one],
    }
    for problem in NODE.check(given, ()):
        raise WrongUsage(f"{path_text(problem.path)}: {problem.text}", obj=node, step=_STEP, action=problem.action)
    return Member(given["name"], labels=given["labels"], taints=tuple(Taint(**one) for one in given["taints"]))


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found:
        raise WrongUsage("there is no = in it", obj=f"{option} {text}", step=_STEP, action=f"Write it as {form}.")
    return key, value


def _taint(text: str) -> dict[str, str]:
    """key=value:effect or key:effect, as kubectl has them."""
    head, found, effect = text.rpartition(":")
    if not found:
        raise WrongUsage(
            "the taint does not say its effect: NoSchedule, PreferNoSchedule or NoExecute",
            obj=f"--taints {text}",
            step=_STEP,
            action="Write it as gpu=yes:NoSchedule.",
        )
    key, _, value = head.partition("=")
    return {"key": key, "value": value, "effect": effect}


def with_member(known: Cluster, member: Member) -> Any:
    """The options of the cluster with one more node. Raises Conflict or Invalid."""
    if any(one.name == member.name for one in known.members):
        raise Conflict(
            f"{known.name} has a node of this name",
            obj=member.name,
            step=_STEP,
            action="Give another name, or none for the next free one.",
        )
    if known.options.nodes >= MOST_NODES:
        raise Invalid(
            f"the cluster has {known.options.nodes} nodes, as many as there can be",
            obj=known.name,
            step=_STEP,
            action=f"Remove one first: {ours(known.name, 'node', 'remove', 'NODE')}.",
        )
    count = known.options.nodes + 1
    return replace(known.options, members=(*known.members, member), nodes=count)


def remove(cluster: str, node: str, *, force: bool, timeout: float, plain: bool) -> None:
    """Remove a node."""
    need_root("node")
    known = find(cluster)
    check_removable(known, node)
    if not force:
        refuse_if_stopped(known)
    order = node_removal.Order(cluster, node, timeout, force)
    tools = Tools(known.tools, sys.executable, str(PROJECT))
    with Display(plain=plain or None) as display:
        left = asyncio.run(node_removal.remove(order, tools, display, SystemClock()))
    names = ", ".join(one.name for one in left.nodes)
    note(f"Node {node} is removed from {cluster} ({display.elapsed:.1f} s). It has {names} now.")
