"""`nodewright service`: how the nodes serve a Service: endpoints, rules with their counters, connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from cli.clusters import find
from cli.errors import need_root
from cli.explain import read
from cli.explain.endpoints import PortView, missing, ports
from cli.explain.facts import Facts, title
from cli.explain.rules_of import Matched, addresses, rules_of
from controlplane.cluster.model import Cluster
from controlplane.machine.edge import rules as edge
from nodelib.errors import NotFound
from nodelib.firewall.objects import Family
from nodelib.json_values import Json

_SHOWN = 10  # connections of one address


def run(name: str, service: str, *, namespace: str, node: str, as_json: bool) -> None:
    """Print it for one node, or for all."""
    need_root("service")
    asyncio.run(_run(find(name), service, namespace, node, as_json))


async def _run(cluster: Cluster, text: str, namespace: str, only: str, as_json: bool) -> None:
    facts = await read.facts(cluster)
    before, slash, after = text.partition("/")
    service = facts.service(before, after) if slash else facts.service(namespace, text)
    if service is None:
        there = ", ".join(sorted(title(one) for one in facts.services)) or "none"
        raise NotFound("no such Service", obj=text, step="read a Service", action=f"There are: {there}")
    nodes = [only] if only else [node.name for node in cluster.nodes]
    shown = {node: await _on_node(cluster, service, facts, node) for node in nodes}
    if as_json:
        print(json.dumps({"service": title(service), "nodes": shown, "missing": missing(service, facts)}, indent=1))
        return
    for line in _head(service, facts):
        print(line)
    for node, view in shown.items():
        for line in _lines(node, view, facts):
            print(line)


async def _on_node(cluster: Cluster, service: Json, facts: Facts, node: str) -> dict[str, Any]:
    view: dict[str, Any] = {"ports": [], "rules": [], "connections": []}
    families = (service.get("spec") or {}).get("ipFamilies") or ["IPv4"]
    for family in (Family(one) for one in families):
        version = 4 if family is Family.IPV4 else 6
        kernel = await read.kernel(cluster, node, version)
        every = ports(service, facts, node, family)
        view["ports"] += [_port(one) for one in every]
        view["rules"] += [one._asdict() for one in rules_of(service, every, kernel.tables, kernel.nftables, family)]
        net = cluster.namespace(node, "net")
        for address in addresses(service, family):
            view["connections"] += await edge.connections(net, address, version)
    return view


def _port(view: PortView) -> dict[str, Any]:
    port = view.port
    return {
        "name": str(port.name),
        "protocol": port.protocol,
        "port": port.port,
        "nodePort": port.node_port,
        "problem": view.problem,
        "endpoints": [
            {"to": one.to, "name": one.name, "node": one.node, "state": one.state, "leftOut": one.left_out}
            for one in view.endpoints
        ],
    }


def _head(service: Json, facts: Facts) -> Iterable[str]:
    spec = service["spec"]
    own = ", ".join(spec.get("clusterIPs") or ["no IP"])
    yield f"Service {title(service)}, type {spec.get('type', 'ClusterIP')}, {own}"
    policies = [f"{name} {spec[name]}" for name in ("internalTrafficPolicy", "externalTrafficPolicy") if name in spec]
    if spec.get("sessionAffinity") == "ClientIP":
        policies.append("sessionAffinity ClientIP")
    if spec.get("trafficDistribution"):
        policies.append(f"trafficDistribution {spec['trafficDistribution']}")
    if policies:
        yield f"  {', '.join(policies)}"
    for line in missing(service, facts):
        yield f"  not an endpoint: {line}"


def _lines(node: str, view: dict[str, Any], facts: Facts) -> Iterable[str]:
    yield ""
    yield f"On node {node}:"
    for port in view["ports"]:
        door = f", NodePort {port['nodePort']}" if port["nodePort"] else ""
        yield f"  port {port['name']} {port['port']}/{port['protocol']}{door}: {port['problem'] or 'served'}"
        for one in port["endpoints"]:
            where = f" on {one['node']}" if one["node"] else ""
            used = f"LEFT OUT: {one['leftOut']}" if one["leftOut"] else one["state"]
            yield f"    {one['to']} {one['name'] or '(no pod)'}{where}: {used}"
    if not view["rules"]:
        yield "  No rules for it in the kernel: the proxy has not synced or has nothing to serve (`nodewright status`)."
    for one in view["rules"]:
        matched = Matched(**one)
        counted = f"{matched.packets:>8}" if matched.packets is not None else "       -"
        yield f"  {counted}  {matched.where}: {matched.text}"
    connections = view["connections"]
    yield f"  {len(connections)} tracked connections"
    for line in connections[:_SHOWN]:
        yield f"    {_named(line, facts)}"
    if len(connections) > _SHOWN:
        yield f"    and {len(connections) - _SHOWN} more"


def _named(line: str, facts: Facts) -> str:
    words = []
    for word in line.split():
        key, sign, value = word.partition("=")
        name = facts.names.get(value) if sign and key in ("src", "dst") else None
        words.append(f"{word} ({name})" if name else word)
    return " ".join(words)
