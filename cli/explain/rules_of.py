"""Finds the rules and set elements of one Service in a kernel's ruleset, with their counters. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

from cli.explain.endpoints import PortView
from cli.explain.facts import balancer_addresses
from nodelib.firewall.nft_text import expression_text
from nodelib.firewall.objects import Family, Rule, TableContent
from nodelib.firewall.render import rule_text
from nodelib.json_values import Json
from proxy.plan.addresses import family_of
from proxy.plan.iptables.names import chain_names

_OF_A_PORT = re.compile(r"[a-z-]+-[A-Z0-9]+-([^/]+/[^/]+/[a-z]+/[^_]*)")


class Matched(NamedTuple):
    """A rule or element; `packets`: how many it matched so far, None where there is no counter."""

    where: str
    text: str
    packets: int | None


def addresses(service: Json, family: Family) -> list[str]:
    """The addresses where clients reach it, without NodePorts."""
    spec = service.get("spec") or {}
    every = [*(spec.get("clusterIPs") or []), *(spec.get("externalIPs") or []), *balancer_addresses(service)]
    return [one for one in dict.fromkeys(every) if one and one != "None" and family_of(one) is family]


def rules_of(
    service: Json,
    views: Iterable[PortView],
    tables: Mapping[str, TableContent],
    ruleset: Mapping[str, Any],
    family: Family,
) -> list[Matched]:
    """In iptables the dispatch rules and the Service's own chains, in nftables the elements and chains that name it."""
    every = list(views)
    found = _iptables(every, tables)
    wanted = set(addresses(service, family))
    ports = {view.port.node_port for view in every if view.port.node_port}
    return [*found, *_nftables(wanted, ports, every, ruleset, "ip" if family is Family.IPV4 else "ip6")]


def _iptables(views: list[PortView], tables: Mapping[str, TableContent]) -> list[Matched]:
    own = {chain for view in views for chain in chain_names(view.port)}
    names = frozenset(str(view.port.name) for view in views)
    found: list[Matched] = []
    pending, seen = sorted(own), set(own)
    for table, content in tables.items():
        for chain, rules in content.chains.items():
            if chain.startswith(("KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-")):
                continue
            found += [
                Matched(f"{table} {chain}", rule_text(rule), _count(content, chain, index))
                for index, rule in enumerate(rules)
                if rule.target in own or _notes(rule, names)
            ]
    nat = tables.get("nat")
    while nat is not None and pending:
        chain = pending.pop(0)
        for index, rule in enumerate(nat.rules(chain)):
            found.append(Matched(f"nat {chain}", rule_text(rule), _count(nat, chain, index)))
            if rule.target.startswith("KUBE-SEP-") and rule.target not in seen:
                seen.add(rule.target)
                pending.append(rule.target)
    return found


def _notes(rule: Rule, names: Set[str]) -> bool:
    """Whether the rule's comment is the port's name, or that name followed by a space and more."""
    words = rule.words
    if "--comment" not in words:
        return False
    note = words[words.index("--comment") + 1]
    return note in names or note.partition(" ")[0] in names


def _count(content: TableContent, chain: str, index: int) -> int | None:
    counters = content.counters.get(chain, ())
    return counters[index] if index < len(counters) else None


def _nftables(
    wanted: set[str], node_ports: set[int], views: list[PortView], ruleset: Mapping[str, Any], family: str
) -> list[Matched]:
    found: list[Matched] = []
    # As upstream's chains have them: service-HASH-shop/web/tcp/http, endpoint-HASH-shop/web/tcp/http__10.1.0.1/80.
    names = frozenset(f"{view.port.name.service}/{view.port.protocol}/{view.port.name.port}" for view in views)
    for item in ruleset.get("nftables") or []:
        kind, obj = next(iter(item.items()))
        if kind in ("set", "map") and obj["family"] == family:
            for element in obj.get("elem") or []:
                if _has(element, wanted, node_ports):
                    text = _element(element)
                    found.append(Matched(f"{obj['table']} {kind} {obj['name']}", text, None))
        elif kind == "rule" and obj["family"] == family and _chain_of(obj["chain"]) in names:
            text = " ".join(filter(None, map(expression_text, obj.get("expr") or [])))
            found.append(Matched(f"{obj['table']} {obj['chain']}", text, _counter(obj)))
    return found


def _chain_of(chain: str) -> str:
    """The Service and port in the name of a chain, "" without one."""
    found = _OF_A_PORT.match(chain)
    return found[1] if found else ""


def _has(element: Any, wanted: set[str], node_ports: set[int]) -> bool:
    """Whether the key has one of the Service's addresses, or a protocol and one of its NodePorts."""
    key = element[0] if isinstance(element, list) and element else element
    if isinstance(key, Mapping) and "elem" in key:
        key = key["elem"]["val"]
    parts = key["concat"] if isinstance(key, Mapping) and "concat" in key else [key]
    return any(isinstance(part, str) and part in wanted for part in parts) or (
        len(parts) >= 2 and any(isinstance(part, int) and part in node_ports for part in parts)
    )


def _element(element: Any) -> str:
    if isinstance(element, list) and len(element) == 2:
        return f"{_element(element[0])} : {expression_text(element[1])}"
    if isinstance(element, Mapping) and "elem" in element:
        return _element(element["elem"]["val"])
    return expression_text(element)


def _counter(rule: Mapping[str, Any]) -> int | None:
    for expression in rule.get("expr") or []:
        if isinstance(expression.get("counter"), Mapping):
            return int(expression["counter"]["packets"])
    return None
