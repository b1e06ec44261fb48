"""Drops as JSON and back: the daemon's answer to `drops` and `why`. Pure.

Who is root on a node may answer in the daemon's place, so reading takes nothing for granted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodelib.json_values import Json, objects_in
from nodelib.text import one_line
from policy.drops.model import Drop
from policy.drops.plan.nearest import best, remedy
from policy.model import Name
from policy.plan import words

_TEXT = 500  # bytes of one text
_MOST = 4096  # drops of one answer
_POLICIES = 64  # of one drop


@dataclass(frozen=True, slots=True)
class End:
    """One end of a flow. `pod`: "namespace/name", "" for what is none."""

    address: str
    pod: str = ""


@dataclass(frozen=True, slots=True)
class ReportedDrop:
    """A drop as a daemon reports it. `why`: by policy, why it did not allow the flow.

    `denied`: the rule of a ClusterNetworkPolicy that has refused it, "" for none.
    """

    number: int
    first: float
    last: float
    count: int
    direction: str
    client: End
    server: End
    protocol: str
    port: int
    policies: tuple[str, ...] = ()
    why: tuple[tuple[str, str], ...] = ()
    remedy: str = ""
    denied: str = ""

    @property
    def port_words(self) -> str:
        return words.port(self.port, self.protocol)


def document(drop: Drop) -> Json:
    flow = drop.flow
    return {
        "number": drop.number,
        "first": drop.first,
        "last": drop.last,
        "count": drop.count,
        "direction": str(flow.direction),
        "from": _end(str(flow.client), drop.client),
        "to": _end(str(flow.server), drop.server) | {"port": flow.port, "protocol": flow.protocol},
        "policies": [str(one) for one in drop.policies[:_POLICIES]],
        "why": [
            {"policy": str(one.policy), "rule": one.rule, "missing": one.missing, "text": one_line(one.text, _TEXT)}
            for one in drop.near[:_POLICIES]
        ],
        "wouldAllow": allows(drop),
        "deniedBy": drop.denied,
    }


def allows(drop: Drop) -> str:
    """What would allow its flow."""
    if drop.denied:
        policy, found, rule = drop.denied.partition(": ")
        return one_line(f"a rule of a {policy} before {rule}", _TEXT) if found else ""
    return one_line(remedy(best(drop.near), drop.flow), _TEXT)


def reported_drop(found: Json) -> ReportedDrop | None:
    """The drop in a daemon's answer, None for what is none."""
    come, to = found.get("from"), found.get("to")
    if not isinstance(come, dict) or not isinstance(to, dict):
        return None
    policies = found.get("policies")
    try:
        return ReportedDrop(
            _number(found, "number"),
            float(found["first"]),
            float(found["last"]),
            _number(found, "count"),
            _text(found, "direction"),
            _read_end(come),
            _read_end(to),
            _text(to, "protocol"),
            _number(to, "port"),
            tuple(one_line(str(one), _TEXT) for one in (policies if isinstance(policies, list) else [])[:_POLICIES]),
            tuple((_text(one, "policy"), _text(one, "text")) for one in objects_in(found.get("why"))[:_POLICIES]),
            _text(found, "wouldAllow"),
            _text(found, "deniedBy"),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def reported_drops(found: Json) -> tuple[ReportedDrop, ...]:
    """The drops in a daemon's answer."""
    every = (reported_drop(one) for one in objects_in(found.get("drops"))[:_MOST])
    return tuple(one for one in every if one is not None)


def as_json(one: ReportedDrop) -> Json:
    """For scripts."""
    return {
        "first": one.first,
        "last": one.last,
        "count": one.count,
        "direction": one.direction,
        "from": {"address": one.client.address, "pod": one.client.pod},
        "to": {"address": one.server.address, "pod": one.server.pod, "port": one.port, "protocol": one.protocol},
        "policies": list(one.policies),
        "why": dict(one.why),
        "wouldAllow": one.remedy,
        "deniedBy": one.denied,
    }


def _end(address: str, name: Name | None) -> Json:
    return {"address": address, "pod": "" if name is None else str(name)}


def _read_end(found: Mapping[str, object]) -> End:
    return End(_text(found, "address"), _text(found, "pod"))


def _text(found: Mapping[str, object], key: str) -> str:
    value = found.get(key)
    return one_line(value, _TEXT) if isinstance(value, str) else ""


def _number(found: Mapping[str, object], key: str) -> int:
    value = found[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(key)
    return value
