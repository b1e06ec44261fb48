"""Prints paths: each hop with its rule, its counter and its meaning. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

from cli.explain.endpoints import missing, ports
from cli.explain.facts import Facts, title
from cli.explain.places import Sender, Target
from cli.explain.reasons import decides, dropped_by_policy, reason
from cli.explain.walk import Leg, Path, policies, split
from controlplane.cluster.advice import ours
from controlplane.cluster.model import DEFAULT_NAME
from nodelib.firewall.fib import DISCARDED, UNREACHABLE
from nodelib.firewall.trace_model import Hop, endpoint_text
from nodelib.json_values import Json

_VERDICT = {
    "ACCEPT": "DOES NOT ARRIVE",
    "DROP": "DROPPED",
    "REJECT": "REFUSED",
    UNREACHABLE: "UNREACHABLE",
    DISCARDED: "DISCARDED",
}


def lines(
    sender: Sender,
    to: Target,
    found: list[Path],
    facts: Facts,
    node: str,
    *,
    verbose: bool,
    cluster: str = DEFAULT_NAME,
) -> list[str]:
    """The verdict and its reasons, then the path hop by hop; of several possible paths only the first.

    `verbose`: every rule that matched, as the kernel has it; otherwise only those that decide something.
    """
    shown = [*verdict(sender, to, found, facts, node, cluster), ""]
    shown.append(f"from {sender.name}" + ("" if sender.address in sender.name else f" at {sender.address}"))
    shown.append(f"to   {facts.named(endpoint_text(to.address, to.port))}/{to.protocol}")
    shown += [f"     {note}" for note in to.notes]
    first, *others = found
    shown += [line for leg in first.legs for line in (_every_rule if verbose else _deciding)(leg, facts)]
    if others:
        shown += ["", f"{len(found)} possible paths, since rules choose among endpoints by chance:"]
        shown += [f"  {end_of(path, facts)}" for path in found]
    if not verbose and first.legs:
        shown += ["", "(Use --verbose to see every rule that matched, with its counter.)"]
    return shown


def verdict(
    sender: Sender, to: Target, found: list[Path], facts: Facts, node: str, cluster: str = DEFAULT_NAME
) -> list[str]:
    """The outcome in one line, and the reasons for it."""
    arrived = [path for path in found if path.arrived]
    shown = [" or ".join(sorted({_word(path) for path in found}))]
    for why in dict.fromkeys(why for path in found for why in path.why):
        shown.append(f"  {why}")
    refused = _refused(sender, found, facts, cluster)
    shown += [f"  {line}" for line in refused]
    if to.service is not None and len(arrived) < len(found) and not refused:
        shown += [f"  {line}" for line in _service_causes(to.service, to.port, facts, node)]
        asked = ours(cluster, "service", title(to.service))
        shown.append(f"  do: {asked} says where it leads, and what is wrong if something is.")
    elif any(path.closed for path in found):
        shown.append("  do: Start the program that should listen there, or give the port on which it does.")
    shown += [f"  {line}" for line in policies(sender.pod, facts, "Egress")]
    ends = [facts.pod_at(path.to.rpartition(":")[0].strip("[]")) for path in arrived]
    for line in dict.fromkeys(line for pod in ends for line in policies(pod, facts, "Ingress")):
        shown.append(f"  {line}")
    return shown


def _refused(come: Sender, found: list[Path], facts: Facts, cluster: str) -> list[str]:
    """What policies refuse, and where it is said what they allow: the Service itself is well then."""
    said: dict[str, None] = {}
    asked: dict[str, None] = {}
    for path in found:
        trail = path.legs[-1].outcome.trail if path.legs and not path.arrived else ()
        if not trail or not (sentence := dropped_by_policy(trail[-1], facts)):
            continue
        said[sentence] = None
        pod = come.pod if "-egress-" in trail[-1].chain else facts.pod_at(split(path.legs[-1].outcome.to)[0])
        if pod is not None:
            asked[title(pod)] = None
    return [*said, *(f"do: {ours(cluster, 'policy', 'explain', one)} lists what is allowed." for one in asked)]


def _word(path: Path) -> str:
    if path.closed:
        return "REFUSED"
    if not path.arrived:
        return _VERDICT.get(path.verdict, "NEVER COMES TO A NODE")
    return "LEAVES THE CLUSTER" if path.leaves else "ARRIVES"


def as_json(found: list[Path], facts: Facts) -> list[Json]:
    return [
        {
            "arrived": path.arrived,
            "leaves": path.leaves,
            "closed": path.closed,
            "verdict": path.verdict,
            "to": path.to,
            "name": facts.names.get(path.to.rpartition(":")[0].strip("[]"), ""),
            "why": list(path.why),
            "legs": [
                {
                    "node": leg.node,
                    "source": leg.packet.source,
                    "destination": endpoint_text(leg.packet.destination, leg.packet.port),
                    "route": asdict(leg.outcome.route) if leg.outcome.route else None,
                    "hops": [{**hop._asdict(), "reason": reason(hop, facts)} for hop in leg.outcome.trail],
                }
                for leg in path.legs
            ],
        }
        for path in found
    ]


def _deciding(leg: Leg, facts: Facts) -> Iterable[str]:
    hops = [hop for hop in leg.outcome.trail if decides(hop)]
    for hop in hops:
        unsure = "perhaps: " if not hop.certain and "probability" not in hop.text else ""
        yield f"{leg.node}: {unsure}{reason(hop, facts) or f'{hop.table} {hop.chain} {hop.text}'}"
    if leg.outcome.route is not None and leg.outcome.verdict == "ACCEPT":
        yield f"{leg.node}: {routed(leg, facts)}"
    elif not hops:
        yield f"{leg.node}: {leg_end(leg, facts)}"


def _every_rule(leg: Leg, facts: Facts) -> Iterable[str]:
    yield (
        f"node {leg.node}, in by {leg.packet.interface}:" if leg.packet.interface else f"node {leg.node}, sent from it:"
    )
    for hop in leg.outcome.trail:
        yield from _hop(hop, facts)
    if leg.outcome.route is not None:
        yield f"  route: {routed(leg, facts)}"
    yield f"  = {leg_end(leg, facts)}"


def routed(leg: Leg, facts: Facts) -> str:
    """The route that the packet takes on from here, "" without one."""
    route, host = leg.outcome.route, split(leg.outcome.to)[0]
    if route is None:
        return ""
    return replace(route, via=facts.named(route.via) if route.via else "").describe(facts.named(host))


def _hop(hop: Hop, facts: Facts) -> Iterable[str]:
    counted = f"[{hop.packets} packets]" if hop.packets is not None else ""
    unsure = "" if hop.certain else " (perhaps)"
    meaning = reason(hop, facts)
    yield f"  {hop.table} {hop.chain}{unsure} {counted}".rstrip()
    yield f"      {hop.text}"
    if meaning:
        yield f"      {meaning}"


def leg_end(leg: Leg, facts: Facts) -> str:
    """What the node has made of the packet."""
    outcome = leg.outcome
    source = f"from {leg.node}'s own address" if outcome.masqueraded else f"from {facts.named(leg.packet.source)}"
    if outcome.verdict != "ACCEPT":
        return f"{_VERDICT[outcome.verdict]} on {leg.node}"
    moved = "translated" if outcome.translated else "not translated"
    return f"{moved}: to {facts.named(outcome.to)}, {source}"


def end_of(path: Path, facts: Facts) -> str:
    """How one possible path ends."""
    if path.closed:
        return f"REFUSED by {facts.named(path.to)}"
    if not path.arrived:
        return f"{_word(path)} on {path.legs[-1].node}" if path.legs else "no path to a node"
    way = " -> ".join(leg.node for leg in path.legs)
    masked = "source translated" if any(leg.outcome.masqueraded for leg in path.legs) else "source kept"
    return f"{facts.named(path.to)} by {way}, {masked}"


def _service_causes(service: Json, port: int, facts: Facts, node: str) -> list[str]:
    found: list[str] = []
    for view in ports(service, facts, node):
        if port in (view.port.port, view.port.node_port) and view.problem:
            found.append(view.problem)
            found += [f"{one.to} {one.name}: {one.left_out}" for one in view.endpoints if one.left_out]
    if not found:
        return []
    return list(dict.fromkeys([*found, *missing(service, facts)]))
