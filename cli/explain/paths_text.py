"""A path in plain lines: each hop with its rule, its counter, and what it means. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from cli.explain.endpoints import missing, ports
from cli.explain.facts import Facts, Json, title
from cli.explain.places import Sender, Target
from cli.explain.reasons import reason
from cli.explain.walk import Leg, Path, policies
from nodelib.firewall.way import Hop, endpoint_text

_VERDICT = {"ACCEPT": "passes", "DROP": "DROPPED", "REJECT": "REFUSED"}


def lines(come: Sender, to: Target, found: list[Path], facts: Facts, node: str) -> list[str]:
    """All paths; those that differ only in the chosen endpoint are told once, with the choice at the end."""
    shown = [f"From {come.name} at {facts.named(come.address)}"]
    shown.append(f"to   {facts.named(endpoint_text(to.address, to.port))}/{to.protocol}, first rules: node {node}")
    shown += [f"note: {note}" for note in to.notes]
    first, *others = found
    shown += ["", *_path(first, facts)]
    if others:
        shown += ["", f"{len(found)} ways in all, as the rules of chance go:"]
        shown += [f"  {_end(path, facts)}" for path in found]
    shown += ["", *verdict(come, to, found, facts, node)]
    return shown


def verdict(come: Sender, to: Target, found: list[Path], facts: Facts, node: str) -> list[str]:
    """The end in one line, and why it is so."""
    arrived = [path for path in found if path.arrived]
    words = sorted({_VERDICT[path.last.verdict] if not path.arrived else "arrives" for path in found})
    shown = [f"Result: {' or '.join(words)}."]
    for why in dict.fromkeys(why for path in found for why in path.why):
        shown.append(f"  {why}")
    if to.service is not None and len(arrived) < len(found):
        shown += [f"  {line}" for line in _service_causes(to.service, to.port, facts, node)]
    shown += [f"  {line}" for line in policies(come.pod, facts, "Egress")]
    ends = [facts.pod_at(path.last.to.rpartition(":")[0].strip("[]")) for path in arrived]
    for line in dict.fromkeys(line for pod in ends for line in policies(pod, facts, "Ingress")):
        shown.append(f"  {line}")
    return shown


def as_json(found: list[Path], facts: Facts) -> list[Json]:
    return [
        {
            "arrived": path.arrived,
            "verdict": path.last.verdict,
            "to": path.last.to,
            "name": facts.names.get(path.last.to.rpartition(":")[0].strip("[]"), ""),
            "why": list(path.why),
            "legs": [
                {
                    "node": leg.node,
                    "source": leg.packet.source,
                    "destination": endpoint_text(leg.packet.destination, leg.packet.port),
                    "hops": [{**hop._asdict(), "reason": reason(hop, facts)} for hop in leg.outcome.trail],
                }
                for leg in path.legs
            ],
        }
        for path in found
    ]


def _path(path: Path, facts: Facts) -> Iterable[str]:
    for leg in path.legs:
        yield f"node {leg.node}:"
        for hop in leg.outcome.trail:
            yield from _hop(hop, facts)
        yield f"  = {_leg_end(leg, facts)}"


def _hop(hop: Hop, facts: Facts) -> Iterable[str]:
    counted = f"[{hop.packets} packets]" if hop.packets is not None else ""
    unsure = "" if hop.certain else " (perhaps)"
    meaning = reason(hop, facts)
    yield f"  {hop.table} {hop.chain}{unsure} {counted}".rstrip()
    yield f"      {hop.text}"
    if meaning:
        yield f"      {meaning}"


def _leg_end(leg: Leg, facts: Facts) -> str:
    outcome = leg.outcome
    source = f"from {leg.node}'s own address" if outcome.masqueraded else f"from {facts.named(leg.packet.source)}"
    if outcome.verdict != "ACCEPT":
        return f"{_VERDICT[outcome.verdict]} on {leg.node}"
    moved = "translated" if outcome.translated else "not translated"
    return f"{moved}: to {facts.named(outcome.to)}, {source}"


def _end(path: Path, facts: Facts) -> str:
    if not path.arrived:
        return f"{_VERDICT[path.last.verdict]} on {path.legs[-1].node}" if path.legs else "unknown"
    way = " -> ".join(leg.node for leg in path.legs)
    masked = "source translated" if any(leg.outcome.masqueraded for leg in path.legs) else "source kept"
    return f"{facts.named(path.last.to)} by {way}, {masked}"


def _service_causes(service: Json, port: int, facts: Facts, node: str) -> list[str]:
    found: list[str] = []
    for view in ports(service, facts, node):
        if port in (view.port.port, view.port.node_port) and view.problem:
            found.append(view.problem)
            found += [f"{one.to} {one.name}: {one.left_out}" for one in view.endpoints if one.left_out]
    if not found:
        return []
    return [*dict.fromkeys([*found, *missing(service, facts)]), f"see `nodewright service {title(service)}`"]
