"""Selectors, peers and ports of policies in words. Pure.

Bounded: a policy may list thousands of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from nodelib.text import one_line
from policy.model import (
    Block,
    DomainNames,
    NamedPort,
    Networks,
    NodeSelection,
    Peer,
    PolicyRule,
    Requirement,
    Selection,
    Selector,
)

_SHOWN = 4  # of a list
_LONGEST = 200  # bytes of one selector
_SORTED = 100  # values of one requirement that are put in order; there may be a hundred thousand


def some(words: Iterable[str], total: int | None = None) -> str:
    """The first few, and how many more there are."""
    first: list[str] = []
    count = 0
    for word in words:
        count += 1
        if len(first) < _SHOWN:
            first.append(word)
        elif total is not None:
            break
    more = (total if total is not None else count) - len(first)
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def selector(chosen: Selector) -> str:
    """Such as "app=db, tier in (a, b)"; "" for one that selects everything."""
    return one_line(", ".join(map(_requirement, chosen.requirements[: _LONGEST // 4])), _LONGEST)


def pods(selection: Selection) -> str:
    """Such as "pods app=db of namespace shop"."""
    which = selector(selection.pods)
    what = f"pods {which}" if which else "every pod"
    if selection.namespaces is None:
        return f"{what} of namespace {one_line(selection.namespace, _LONGEST)}"
    where = selector(selection.namespaces)
    return f"{what} of namespaces {where}" if where else f"{what} of every namespace"


def block(of: Block) -> str:
    return str(of.cidr) + (f" except {some(map(str, of.excepted), len(of.excepted))}" if of.excepted else "")


def peer(of: Peer) -> str:
    match of:
        case Selection():
            return pods(of)
        case NodeSelection():
            which = selector(of.nodes)
            return f"nodes {which}" if which else "every node"
        case Networks():
            return some(map(str, of.cidrs), len(of.cidrs))
        case DomainNames():
            return f"the names {some(of.names, len(of.names))}"
    return block(of)


def peers(of: tuple[Peer, ...] | None) -> str:
    """Those of one rule."""
    if of is None:
        return "anybody"
    return some(map(peer, of), len(of)) if of else "nobody"


def port(number: int, protocol: str) -> str:
    """Such as "53/UDP"; protocols without ports by their name alone."""
    return f"{number}/{protocol}" if number else protocol


def ports(rule: PolicyRule) -> str:
    """Those of one rule."""
    if rule.ports is None:
        return "any port"
    words = [_range(one.first, one.last, one.protocol) for one in rule.ports[: _SHOWN + 1]]
    words += [named(one) for one in rule.named[: _SHOWN + 1]]
    total = len(rule.ports) + len(rule.named)
    return some(words, total) if total else "no port"


def named(of: NamedPort) -> str:
    return f"the port named {one_line(of.name, _LONGEST)}/{of.protocol}"


def _range(first: int, last: int, protocol: str) -> str:
    if (first, last) == (0, 65535):
        return f"every {protocol} port"
    return f"{first}/{protocol}" if first == last else f"{first}-{last}/{protocol}"


def _requirement(of: Requirement) -> str:
    values = sorted(islice(of.values, _SORTED))
    match of.operator:
        case "Exists":
            return f"with {of.key}"
        case "DoesNotExist":
            return f"without {of.key}"
        case "In" if len(of.values) == 1:
            return f"{of.key}={values[0]}"
        case "NotIn" if len(of.values) == 1:
            return f"{of.key}!={values[0]}"
    return f"{of.key} {'in' if of.operator == 'In' else 'not in'} ({some(values, len(of.values))})"
