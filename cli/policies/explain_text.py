"""What `policy explain` says: each direction, who isolates, and its rules as peers and ports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cli.policies.objects import Objects
from nodelib.json_values import Json
from nodelib.text import one_line
from policy.model import Direction, Name
from policy.plan.explain import Allowed, Decided, Explained, Side

HEADS = ("PEER", "NOW", "PORT", "POLICY", "RULE")
_CELL = 200  # bytes
_CLOSED = {Direction.INGRESS: "nobody may reach it", Direction.EGRESS: "it may reach nobody"}
_OPEN = {Direction.INGRESS: "anybody may reach it", Direction.EGRESS: "it may reach anybody"}


def rows(side: Side) -> list[tuple[str, ...]]:
    return [_row(one) for one in side.allowed]


def tables(side: Side) -> list[tuple[str, list[tuple[str, ...]]]]:
    """What decides, in its order: a title and the rows of a table, with its head, for each part."""
    word, found = side.direction.lower(), []
    if side.admin:
        found.append(
            (f"{word}: ClusterNetworkPolicies decide first, in this order (tier Admin):", _decided(side.admin))
        )
    found.append((title(side), [HEADS, *rows(side)] if side.allowed else []))
    if side.baseline:
        text = f"{word}: after that, in this order (ClusterNetworkPolicies, tier Baseline):"
        found.append((text, _decided(side.baseline)))
    return found


def title(side: Side) -> str:
    """Such as "ingress: isolated by a/web. Allowed:"."""
    word = side.direction.lower()
    if not side.isolated_by:
        what = "what they leave" if side.admin or side.baseline else ""
        return f"{word}: no NetworkPolicy isolates it, so {what or _OPEN[side.direction]}{' passes' if what else ''}."
    by = one_line(", ".join(map(str, side.isolated_by)), 10 * _CELL)
    end = "Allowed:" if side.allowed else f"No rule allows anything: {_CLOSED[side.direction]}."
    return f"{word}: isolated by {by}. {end}"


def notes(found: Explained, objects: Objects) -> list[str]:
    """What else is to be known."""
    mine = dict.fromkeys(name for side in found.sides for name in side.isolated_by)
    said = [
        f"NetworkPolicy {name}: {text} (left out: what it would allow stays closed)"
        for name in mine
        for text in objects.problems.get(name, ())
    ]
    said += objects.notes
    if not objects.whole:
        said.append("The cluster has more objects than were looked at.")
    if any(side.shortened for side in found.sides):
        said.append("Only the first rules and peers are shown.")
    if mine:
        said.append("Packets between the pod and its own node, such as those of probes, always pass.")
    return said


def document(found: Explained, objects: Objects) -> Json:
    """For scripts."""
    return {
        "pod": str(found.pod),
        "exempt": found.exempt,
        **{side.direction.lower(): _side(side) for side in found.sides},
        "notes": notes(found, objects),
    }


def _side(side: Side) -> Json:
    return {
        "isolated": bool(side.isolated_by),
        "policies": list(map(str, side.isolated_by)),
        "allowed": [_allowed(one) for one in side.allowed],
        "admin": [_allowed(one.what) | {"action": str(one.action)} for one in side.admin],
        "baseline": [_allowed(one.what) | {"action": str(one.action)} for one in side.baseline],
    }


def _allowed(one: Allowed) -> Json:
    return {
        "policy": one.policy.name if not one.policy.namespace else str(one.policy),
        "rule": one.rule,
        "peer": one.peer,
        "ports": one.ports,
        "pods": list(map(str, one.pods)),
        "podCount": one.count,
    }


def _decided(every: Sequence[Decided]) -> list[tuple[str, ...]]:
    return [("ACTION", *HEADS), *((str(one.action), *_row(one.what)) for one in every)]


def _row(one: Allowed) -> tuple[str, ...]:
    policy = str(one.policy) if one.policy.namespace else one.policy.name
    cells: Sequence[str] = (one.peer, _now(one.pods, one.count), one.ports, policy, one.rule)
    return tuple(one_line(cell, _CELL) for cell in cells)


def _now(pods: Iterable[Name], count: int | None) -> str:
    if count is None:
        return "-"
    shown = list(map(str, pods))
    if not shown:
        return "no pod"
    return ", ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")
