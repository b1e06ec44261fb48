"""Traces a packet through nftables chains, given as `nft -j list ruleset` prints them (libnftables-json(5)). Pure.

It knows what service proxies and the pod network write: matches on addresses, ports, protocol, mark, connection state,
fib type and interfaces, sets and verdict maps, jump and goto, dnat (also through maps and numgen), marks, masquerade,
reject. Any other match raises Invalid; with `lenient` the trace branches, and the hop says that it is not certain.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodelib.errors import Invalid
from nodelib.firewall.nft_text import expression_text
from nodelib.firewall.nft_values import Table, lookup, matches, number, values
from nodelib.firewall.trace_model import Base, Branch, Hop, Node
from nodelib.json_values import Json

_DEPTH = 32
_IPTABLES = frozenset(
    {"raw", "mangle", "nat", "filter", "security"}
)  # iptables-nft's tables, which trace_iptables reads
_IGNORED = frozenset(
    {"counter", "log", "set", "map", "comment", "notrack", "ct timeout", "flow", "limit", "quota", "queue"}
)
_VERDICTS = frozenset({"accept", "drop", "return", "jump", "goto", "continue"})


@dataclass(frozen=True, slots=True)
class Walker:
    """Walks a base chain of a table."""

    table: Table
    name: str
    policy: str
    lenient: bool

    def walk(self, branch: Branch, node: Node) -> list[Branch]:
        left = _chain(self, self.name, branch, node, 0)
        return [replace(one, verdict="DROP") if not one.verdict and self.policy == "drop" else one for one in left]


def bases(ruleset: Json, family: str, *, lenient: bool = False) -> list[Base]:
    """The base chains of tables of `family` ("ip" or "ip6") and of inet, without those of iptables-nft."""
    tables: dict[tuple[str, str], Table] = {}
    found: list[Base] = []
    for item in ruleset.get("nftables") or []:
        kind, obj = next(iter(item.items()))
        if kind == "metainfo" or obj["family"] not in (family, "inet"):
            continue
        name = obj["name"] if kind == "table" else obj["table"]
        if obj["family"] != "inet" and name in _IPTABLES:
            continue
        table = tables.setdefault((obj["family"], name), Table(obj["family"], name))
        if kind == "chain":
            table.rules.setdefault(obj["name"], [])
            if "hook" in obj:
                walker = Walker(table, obj["name"], obj.get("policy", "accept"), lenient)
                found.append(Base(obj["hook"], int(obj["prio"]), obj["type"] == "nat", walker.walk))
        elif kind == "rule":
            table.rules.setdefault(obj["chain"], []).append(obj)
        elif kind in ("set", "map"):
            table.elements[obj["name"]] = list(obj.get("elem") or [])
    return found


def _chain(walker: Walker, name: str, start: Branch, node: Node, depth: int) -> list[Branch]:
    if depth > _DEPTH:
        raise Invalid(f"chains jump in a circle at {name}", obj=f"table {walker.table.name}", step="trace a packet")
    pending, done = [start], []
    for rule in walker.table.rules.get(name, []):
        going: list[Branch] = []
        for branch in pending:
            onward, ended = _rule(walker, name, rule, branch, node, depth)
            going += onward
            done += ended
        pending = going
    return done + pending


def _rule(
    walker: Walker, chain: str, rule: Json, branch: Branch, node: Node, depth: int
) -> tuple[list[Branch], list[Branch]]:
    """(branches that continue with the next rule, branches that leave this chain)"""
    expressions: Sequence[Json] = rule.get("expr") or []
    certain, packets = True, None
    for expression in expressions:
        kind, body = next(iter(expression.items()))
        if kind == "counter" and isinstance(body, Mapping):
            packets = int(body.get("packets", 0))
        if kind != "match":
            continue
        try:
            if not matches(walker.table, body, branch, node):
                return [branch], []
        except Invalid:
            if not walker.lenient:
                raise
            certain = False
    text = " ".join(filter(None, map(expression_text, expressions)))
    if rule.get("comment"):
        text += f' comment "{rule["comment"]}"'
    hop = Hop(f"{walker.table.family} {walker.table.name}", chain, text, packets, certain)
    seen = replace(branch, trail=(*branch.trail, hop))
    missed = [] if certain else [branch]
    current, ended = [seen], []
    for expression in expressions:
        kind, body = next(iter(expression.items()))
        if kind == "match" or kind in _IGNORED:
            continue
        after: list[Branch] = []
        for one in current:
            onward, left = _statement(walker, kind, body, one, node, depth)
            if onward is None:  # the lookup found nothing, so the rule does not match
                missed.append(replace(one, trail=branch.trail))
                continue
            after += onward
            ended += left
        current = after
    return missed + current, ended


def _statement(
    walker: Walker, kind: str, body: Any, branch: Branch, node: Node, depth: int
) -> tuple[list[Branch] | None, list[Branch]]:
    if kind == "vmap":
        return _verdict_map(walker, body, branch, node, depth)
    if kind in _VERDICTS:
        return _verdict(walker, kind, body, branch, node, depth)
    if kind == "reject":
        return [], [replace(branch, verdict="REJECT")]
    if kind == "masquerade":
        return [], [replace(branch, verdict="ACCEPT", masqueraded=True)]
    if kind == "dnat":
        branches = _translated(walker.table, body, branch, node)
        return (None, []) if branches is None else ([], branches)
    if kind == "mangle":
        if body["key"] == {"meta": {"key": "mark"}}:
            mark = number(values(walker.table, body["value"], branch, node)[0])
            return [replace(branch, packet=replace(branch.packet, mark=mark))], []
        return [branch], []
    if walker.lenient:
        return [branch], []
    raise Invalid(f"a statement that the tracer does not know: {kind}", obj="nftables", step="trace a packet")


def _verdict(
    walker: Walker, kind: str, body: Any, branch: Branch, node: Node, depth: int
) -> tuple[list[Branch] | None, list[Branch]]:
    if kind == "continue":
        return [branch], []
    if kind in ("accept", "drop"):
        return [], [replace(branch, verdict=kind.upper())]
    if kind == "return":
        return [], [branch]
    left = _chain(walker, body["target"], branch, node, depth + 1)
    if kind == "goto":
        return [], left
    return [one for one in left if not one.verdict], [one for one in left if one.verdict]


def _verdict_map(
    walker: Walker, body: Json, branch: Branch, node: Node, depth: int
) -> tuple[list[Branch] | None, list[Branch]]:
    keys = values(walker.table, body["key"], branch, node)
    onward: list[Branch] = []
    ended: list[Branch] = []
    hit = False
    for key in keys:
        for verdict in lookup(walker.table, body["data"], key):
            hit = True
            kind, target = next(iter(verdict.items())) if isinstance(verdict, Mapping) else (str(verdict), None)
            last = branch.trail[-1]
            where = f" {target['target']}" if isinstance(target, Mapping) and "target" in target else ""
            text = f"{last.text} -> {kind}{where}"
            seen = replace(branch, trail=(*branch.trail[:-1], last._replace(text=text, certain=len(keys) == 1)))
            if kind == "reject":
                ended.append(replace(seen, verdict="REJECT"))
                continue
            more, left = _verdict(walker, kind, target, seen, node, depth)
            onward += more or []
            ended += left
    return (onward, ended) if hit else (None, [])


def _translated(table: Table, body: Json, branch: Branch, node: Node) -> list[Branch] | None:
    """A branch for every destination of a dnat; None: its map has none for this packet."""
    branches: list[Branch] = []
    addresses = values(table, body["addr"], branch, node) if "addr" in body else [branch.packet.destination]
    ports = values(table, body["port"], branch, node) if "port" in body else [branch.packet.port]
    for address, port in itertools.product(addresses, ports):
        parts = list(address) if isinstance(address, tuple) else [address, port]
        moved = replace(branch.packet, destination=str(parts[0]), port=number(parts[1]))
        branches.append(replace(branch, packet=moved, verdict="ACCEPT", translated=True))
    return branches or None
