"""The lines of `service`: what the Service is, what is wrong with it, its ports as the nodes see them, its rules. Pure.

Nodes that agree are one paragraph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from cli.explain import tracked
from cli.explain.endpoints import PortView, Silent
from cli.explain.facts import Facts, balancer_addresses, title
from cli.explain.problems import Problem
from cli.explain.rules_of import Matched
from nodelib.firewall.trace_model import endpoint_text
from nodelib.json_values import Json
from nodelib.text import counted

_SHOWN = 10  # connections
_ENDPOINTS, _PORTS = 200, 200  # of one port, and of one Service: nobody reads more of them
_View = TypeVar("_View")


def head(service: Json, said: str, problems: Iterable[Problem], announced: str = "") -> Iterator[str]:
    """The Service in a line, its policies, what kind it is, and each problem with what to do."""
    spec = service.get("spec") or {}
    own = [one for one in spec.get("clusterIPs") or [] if one and one != "None"]
    external = [*(spec.get("externalIPs") or []), *balancer_addresses(service)]
    yield ", ".join([f"Service {title(service)}", f"type {spec.get('type', 'ClusterIP')}", *own, *external])
    policies = [f"{name} {spec[name]}" for name in ("internalTrafficPolicy", "externalTrafficPolicy") if name in spec]
    if spec.get("sessionAffinity") == "ClientIP":
        policies.append("sessionAffinity ClientIP")
    if spec.get("trafficDistribution"):
        policies.append(f"trafficDistribution {spec['trafficDistribution']}")
    if policies:
        yield f"  {', '.join(policies)}"
    if said:
        yield f"  {said}"
    if announced:
        yield f"  {announced}"
    for one in problems:
        yield f"  problem: {one.text}"
        if one.action:
            yield f"    do: {one.action}"


def ports(views: Mapping[str, Sequence[PortView]], silent: Sequence[Silent]) -> Iterator[str]:
    """A paragraph for the nodes that see the same."""
    known = closed_at(silent)
    for nodes, seen in folded(views):
        if not seen:
            continue
        yield ""
        yield f"{_on(nodes)}:"
        for view in seen[:_PORTS]:
            port = view.port
            node_port = f", NodePort {port.node_port}" if port.node_port else ""
            yield f"  port {port.name} {port.port}/{port.protocol}{node_port}: {_served(view, known)}"
            for one in view.endpoints[:_ENDPOINTS]:
                where = f" on {one.node}" if one.node else ""
                closed = known.get((one.to, port.protocol.lower()), "")
                used = f"LEFT OUT: {one.left_out}" if one.left_out else one.state
                used = f"{one.state}, but {closed}" if closed and not one.left_out else used
                yield f"    {one.to} {one.name or '(no pod)'}{where}: {used}"
            if len(view.endpoints) > _ENDPOINTS:
                yield f"    and {len(view.endpoints) - _ENDPOINTS} more endpoints"
        if len(seen) > _PORTS:
            yield f"  and {len(seen) - _PORTS} more ports"


def endpoints(service: Json, facts: Facts, silent: Sequence[Silent]) -> Iterator[str]:
    """The endpoints of a headless Service, which are the same for everybody."""
    yield ""
    yield "Endpoints, as DNS has them:"
    count = 0
    known = {one.address: one.why for one in reversed(silent)}
    for part in facts.slices_of(service):
        for entry in part.get("endpoints") or []:
            for address in entry.get("addresses") or []:
                count += 1
                if count > _ENDPOINTS:
                    continue
                pod = facts.pod_behind(service, str(address))
                ready = (entry.get("conditions") or {}).get("ready") in (None, True)
                state = "ready" if ready else "LEFT OUT: its EndpointSlice says that it is not ready"
                closed = known.get(str(address), "")
                where = f" on {entry['nodeName']}" if entry.get("nodeName") else ""
                name = f"pod {title(pod)}" if pod is not None else "(no pod)"
                own = f", host name {entry['hostname']}" if entry.get("hostname") else ""
                yield f"  {address} {name}{where}: {state}{own}{f', but {closed}' if closed else ''}"
    if not count:
        yield "  none"
    if count > _ENDPOINTS:
        yield f"  and {count - _ENDPOINTS} more"


def rules(found: Mapping[str, Sequence[Matched]]) -> Iterator[str]:
    """The rules of the nodes that have the same, with a column of packets for each node."""
    for nodes, shown in folded({node: [(one.where, one.text) for one in rules] for node, rules in found.items()}):
        yield ""
        yield f"Rules on {', '.join(nodes)} (packets, where, rule):"
        counters = [[one.packets for one in found[node]] for node in nodes]
        for number, (where, text) in enumerate(shown):
            columns = "  ".join(f"{'-' if each[number] is None else each[number]:>8}" for each in counters)
            yield f"  {columns}  {where}: {text}"
        if not shown:
            yield "  none"


def connections(found: Mapping[str, Sequence[str]], facts: Facts, to: str = "") -> Iterator[str]:
    """How many each node tracks, and the first of them. `to`: to which addresses, if not to all."""
    yield ""
    yield f"Tracked connections{to}: " + ", ".join(f"{node} {len(lines)}" for node, lines in found.items())
    for node, lines in found.items():
        for line in lines[:_SHOWN]:
            yield f"  {node}: {_connection(line, facts)}"
        if len(lines) > _SHOWN:
            yield f"  {node}: and {len(lines) - _SHOWN} more"


def folded(by_node: Mapping[str, _View]) -> list[tuple[list[str], _View]]:
    """The nodes that have the same, in the order of the first of each."""
    found: list[tuple[list[str], _View]] = []
    for node, value in by_node.items():
        for nodes, other in found:
            if other == value:
                nodes.append(node)
                break
        else:
            found.append(([node], value))
    return found


def _served(view: PortView, known: Mapping[tuple[str, str], str]) -> str:
    if view.problem:
        return view.problem
    used = [one for one in view.endpoints if not one.left_out]
    closed = [one for one in used if known.get((one.to, view.port.protocol.lower()))]
    if not closed:
        return "served"
    if len(closed) == len(used):
        return "refused by every endpoint"
    return f"refused by {len(closed)} of {len(used)} endpoints"


def closed_at(silent: Sequence[Silent]) -> Mapping[tuple[str, str], str]:
    """Why nobody listens, by endpoint and protocol."""
    return {(endpoint_text(one.address, one.port), one.protocol.lower()): one.why for one in reversed(silent)}


def _on(nodes: Sequence[str]) -> str:
    return f"On node {nodes[0]}" if len(nodes) == 1 else f"On nodes {', '.join(nodes[:-1])} and {nodes[-1]}"


def _connection(line: str, facts: Facts) -> str:
    """From the client by the Service's address to the endpoint, then what is known of it; another line as it is."""
    found = tracked.parse(line)
    if found is None:
        return line
    there, back = found.there, found.back
    client = facts.named(there.source)
    if back.destination != there.source:
        client += f", masqueraded as {facts.named(back.destination)}"
    endpoint = facts.named(back.source) if back.source != there.destination else "no endpoint"
    state = ", ".join(filter(None, (found.state, "" if found.is_answered else "not answered"))) or "answered"
    counters = "".join(_sent(one, where) for one, where in ((there, "there"), (back, "back")))
    return f"{client} -> {there.destination} -> {endpoint}, {found.protocol}, {state}{counters}"


def _sent(way: tracked.Direction, where: str) -> str:
    if way.packets is None or way.size is None:
        return ""
    return f", {counted(way.packets, 'packet')} with {counted(way.size, 'byte')} {where}"
