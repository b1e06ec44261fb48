"""`nodewright service`: whether and how the nodes serve a Service, and if not, why and what to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cli.clusters import reachable
from cli.errors import need_root
from cli.explain import read, service_text, service_words
from cli.explain.balancer import announced, announcers
from cli.explain.endpoints import PortView, Silent, missing, ports, silent_endpoints
from cli.explain.facts import Facts, key, title
from cli.explain.named import SERVICE, kind_of
from cli.explain.problems import Problem
from cli.explain.rules_of import Matched, addresses, rules_of
from cli.why.wording import Wording
from controlplane.cluster.advice import ours
from controlplane.cluster.model import Cluster
from controlplane.machine.edge import rules as edge
from nodelib.errors import NotFound
from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.text import one_line

_LINE = 2000  # bytes of a printed line
_ADDRESSES = 16  # of a Service, whose connections are counted: a program for each, on each node


@dataclass(frozen=True, slots=True)
class _Node:
    """What one node has of the Service."""

    ports: tuple[PortView, ...]
    rules: tuple[Matched, ...]
    connections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServiceFound:
    """The Service and all that is known of it."""

    service: Json
    facts: Facts
    nodes: Mapping[str, _Node]
    silent: Sequence[Silent]
    problems: Sequence[Problem]
    about: str


def run(name: str, service: str, *, namespace: str, node: str, as_json: bool, rules: bool = False) -> None:
    """Print it for one node, or for all; with `rules` also the rules in the nodes' kernels."""
    need_root("service")
    found = asyncio.run(look(reachable(name), service, namespace, node))
    if as_json:
        print(json.dumps(_document(found), indent=1))
        return
    for line in lines(found, rules):
        print(one_line(line, _LINE))


async def look(cluster: Cluster, text: str, namespace: str, only: str = "", known: Facts | None = None) -> ServiceFound:
    """Read what the nodes have of the Service, or the node `only`. `known`: the objects, if the caller has them."""
    names = [only] if only else [node.name for node in cluster.nodes]
    begun = {version: read.kernels(cluster, names, version) for version in cluster.families}
    try:
        facts = known or await read.facts(cluster)
        service = _service(text, namespace, facts, cluster.name)
        kernels = {(one.node, version): one for version, reading in begun.items() for one in await reading}
    finally:
        for reading in begun.values():
            reading.cancel()
        await asyncio.gather(*begun.values(), return_exceptions=True)
    seen = await asyncio.gather(*(_on_node(cluster, service, facts, node, kernels) for node in names))
    nodes = dict(zip(names, seen, strict=True))
    listening = read.listening(cluster, facts)
    problems = service_words.problems(service, facts, listening, cluster.domain)
    about = service_words.about(service, facts, cluster.domain)
    without = [node for node, one in nodes.items() if one.ports and not one.rules]
    if without and not about:
        problems.append(service_words.unwritten(without, service))
    wording = Wording(cluster.name)
    problems = [replace(one, action=wording.typed(one.action)) for one in problems]
    return ServiceFound(service, facts, nodes, silent_endpoints(service, facts, listening), problems, about)


def _service(text: str, namespace: str, facts: Facts, cluster: str) -> Json:
    kind, own = kind_of(text)
    before, slash, after = (own if kind == SERVICE else text).partition("/")
    wanted = (before, after) if slash else (namespace, before)
    service = facts.service(*wanted)
    if service is not None:
        return service
    same = sorted(title(one) for one in facts.services if key(one)[1] == wanted[1])
    if same:
        action = f"It is in another namespace: {ours(cluster, 'service', same[0])}."
    else:
        there = sorted(title(one) for one in facts.services)
        action = f"There are: {', '.join(there[:20]) or 'none'}{', ...' if len(there) > 20 else ''}."
    raise NotFound("no such Service", obj="/".join(wanted), step="read a Service", action=action)


async def _on_node(
    cluster: Cluster, service: Json, facts: Facts, node: str, kernels: Mapping[tuple[str, int], edge.Kernel]
) -> _Node:
    every: list[PortView] = []
    found: list[Matched] = []
    lines: list[str] = []
    families = (service.get("spec") or {}).get("ipFamilies") or ["IPv4"]
    for family in (Family(one) for one in families if (node, 4 if one == "IPv4" else 6) in kernels):
        version = 4 if family is Family.IPV4 else 6
        net, kernel = cluster.namespace(node, "net"), kernels[node, version]
        tracked = await asyncio.gather(
            *(edge.connections(net, address, version) for address in addresses(service, family)[:_ADDRESSES])
        )
        views, rules = await asyncio.to_thread(_seen, service, facts, node, kernel, family)
        every += views
        found += rules
        lines += [line for each in tracked for line in each]
    return _Node(tuple(every), tuple(found), tuple(lines))


def _seen(
    service: Json, facts: Facts, node: str, kernel: edge.Kernel, family: Family
) -> tuple[list[PortView], list[Matched]]:
    """Blocking: a Service may have hundreds of thousands of pairs of endpoints and ports, a kernel as many rules."""
    views = ports(service, facts, node, family)
    return views, rules_of(service, views, kernel.tables, kernel.nftables, family)


def lines(found: ServiceFound, rules: bool = False) -> Iterator[str]:
    """What the command prints."""
    yield from service_text.head(found.service, found.about, found.problems, announced(found.service, found.facts))
    if service_words.is_headless(found.service):
        yield from service_text.endpoints(found.service, found.facts, found.silent)
    yield from service_text.ports({node: one.ports for node, one in found.nodes.items()}, found.silent)
    if rules:
        yield from service_text.rules({node: one.rules for node, one in found.nodes.items()})
    if any(one.ports for one in found.nodes.values()):
        some = any(len(addresses(found.service, family)) > _ADDRESSES for family in Family)
        to = f" to its first {_ADDRESSES} addresses" if some else ""
        tracked = {node: one.connections for node, one in found.nodes.items()}
        yield from service_text.connections(tracked, found.facts, to)


def _document(found: ServiceFound) -> dict[str, Any]:
    closed = service_text.closed_at(found.silent)
    nodes = {
        node: {
            "ports": [_port(view, closed) for view in one.ports],
            "rules": [rule._asdict() for rule in one.rules],
            "connections": list(one.connections),
        }
        for node, one in found.nodes.items()
    }
    return {
        "service": title(found.service),
        "type": str((found.service.get("spec") or {}).get("type", "ClusterIP")),
        "about": found.about,
        "announcers": announcers(found.service, found.facts),
        "problems": [asdict(one) for one in found.problems],
        "nodes": nodes,
        "missing": missing(found.service, found.facts),
    }


def _port(view: PortView, closed: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    port = view.port
    return {
        "name": str(port.name),
        "protocol": port.protocol,
        "port": port.port,
        "nodePort": port.node_port,
        "problem": view.problem,
        "endpoints": [
            {
                "to": one.to,
                "name": one.name,
                "node": one.node,
                "state": one.state,
                "leftOut": one.left_out,
                "notListening": closed.get((one.to, port.protocol.lower()), ""),
            }
            for one in view.endpoints
        ],
    }
