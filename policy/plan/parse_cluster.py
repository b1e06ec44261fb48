"""Reads ClusterNetworkPolicies and Nodes as the API has them. Pure.

Reading never raises. A rule with a part that cannot be understood is closed as the API says for peers of a newer
version: an Accept rule matches nothing, a Deny or Pass rule denies everything. A policy whose tier, priority or subject
cannot be understood is skipped, because closing the whole cluster for it would close its DNS, too. Both are `Problem`s.
The API server checks objects by their CRD, but not the selectors in them, and the CRD may be of another version.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from nodelib.json_values import Json, object_or_empty
from policy.cluster_model import Action, ClusterPolicy, ClusterRule, Tier
from policy.model import (
    Direction,
    DomainNames,
    NamedPort,
    Networks,
    NodePlace,
    NodeSelection,
    Peer,
    PolicyRule,
    PortRange,
    Problem,
    Selection,
    Selector,
)
from policy.plan import parse
from policy.plan.parse import Unclear

T = TypeVar("T")

KIND = "ClusterNetworkPolicy"
MOST = 25  # rules of one direction, and peers, protocols and networks of one rule
LONGEST_NAME = 100  # of a rule
_HIGHEST_PRIORITY = 1000
_SPECIFIC = {"tcp": "TCP", "udp": "UDP", "sctp": "SCTP"}
_NAMED = "destinationNamedPort"
_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_DOMAIN = re.compile(r"(\*\.)?([a-z0-9_]([-a-z0-9_]*[a-z0-9])?\.)+[a-z0-9_]([-a-z0-9_]*[a-z0-9])?")
_LONGEST_DOMAIN = 253
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LONGEST_KEY = 317
_NOTHING = PolicyRule(peers=())
_EVERYTHING = PolicyRule()


def cluster_policy(obj: Json, *, no_names: str = "") -> tuple[ClusterPolicy | None, list[Problem]]:
    """A ClusterNetworkPolicy, None if it has to be skipped, and what was not understood.

    `no_names`: why rules with domain names cannot be obeyed here, "" if they can.
    """
    name, spec = parse.name_of(obj).name, object_or_empty(obj.get("spec"))
    problems: list[Problem] = []
    try:
        tier, priority, subject = _tier(spec.get("tier")), _priority(spec.get("priority")), _subject(spec)
    except Unclear as error:
        return None, [Problem(f"{KIND} {name}", f"{error}: the whole policy is skipped")]
    rules: dict[Direction, tuple[ClusterRule, ...]] = {}
    for direction in Direction:
        entries = spec.get(direction.lower())
        found = []
        for number, entry in enumerate(entries if isinstance(entries, list) else ()):
            one, problem = _rule(object_or_empty(entry), direction, number, no_names)
            found.append(one)
            if problem:
                problems.append(Problem(f"{KIND} {name}", f"spec.{direction.lower()}[{number}]: {problem}"))
        if found:
            rules[direction] = tuple(found)
    return ClusterPolicy(name, tier, priority, subject, rules), problems


def node(obj: Json) -> NodePlace:
    """A Node."""
    given = object_or_empty(obj.get("status")).get("addresses")
    texts = [object_or_empty(one).get("address") for one in (given if isinstance(given, list) else ())[:64]]
    return NodePlace(parse.namespace_labels(obj), parse.addresses(texts))


def _tier(value: object) -> Tier:
    if value not in list(Tier):
        raise Unclear(f"spec.tier {str(value)[:20]!r} is neither Admin nor Baseline")
    return Tier(str(value))


def _priority(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _HIGHEST_PRIORITY:
        raise Unclear(f"spec.priority {str(value)[:20]!r} is not 0 to {_HIGHEST_PRIORITY}")
    return value


def _subject(spec: Json) -> Selection:
    try:
        key, value = _only(spec.get("subject"), ("namespaces", "pods"))
        return _selection(key, value)
    except Unclear as error:
        raise Unclear(f"spec.subject: {error}") from error


def _rule(entry: Json, direction: Direction, number: int, no_names: str) -> tuple[ClusterRule, str]:
    """The rule, and what of it was not understood."""
    name = str(entry.get("name") or "")[:LONGEST_NAME]
    action = entry.get("action")
    if action not in list(Action):
        said = f"the action {str(action)[:20]!r} is unknown, so the rule denies everything"
        return ClusterRule(Action.DENY, _EVERYTHING, name), said
    try:
        if number >= MOST:
            raise Unclear(f"more than {MOST} rules")
        match = _match(entry, direction)
        if any(isinstance(one, DomainNames) for one in match.peers or ()):
            if action != Action.ACCEPT:
                raise Unclear("domainNames go with the action Accept only")
            if no_names:
                raise Unclear(f"domainNames: {no_names}")
        return ClusterRule(Action(str(action)), match, name), ""
    except Unclear as error:
        if action == Action.ACCEPT:
            return ClusterRule(Action.ACCEPT, _NOTHING, name), f"{error}, so the rule accepts nothing"
        return ClusterRule(Action.DENY, _EVERYTHING, name), f"{error}, so the rule denies everything"


def _match(entry: Json, direction: Direction) -> PolicyRule:
    key = "from" if direction is Direction.INGRESS else "to"
    peers = tuple(dict.fromkeys(_each(entry.get(key), key, lambda one: _peer(one, direction))))
    if entry.get("protocols") is None:
        return PolicyRule(peers)
    numbers: list[PortRange] = []
    named: list[NamedPort] = []
    for found in _each(entry["protocols"], "protocols", _protocol):
        if isinstance(found, PortRange):
            numbers.append(found)
        else:
            named += found
    if named and not all(isinstance(one, Selection) for one in peers):
        raise Unclear(f"protocols: {_NAMED} goes with pods only: networks, nodes and domain names have no named ports")
    return PolicyRule(peers, tuple(numbers), tuple(dict.fromkeys(named)))


def _each(value: object, where: str, read: Callable[[object], T]) -> list[T]:
    """Every entry of a list that must have some. Raises Unclear, with the place of the first entry that is so."""
    if not isinstance(value, list) or not 1 <= len(value) <= MOST:
        raise Unclear(f"{where} is not a list of 1 to {MOST}")
    found = []
    for number, one in enumerate(value):
        try:
            found.append(read(one))
        except Unclear as error:
            raise Unclear(f"{where}[{number}]: {error}") from error
    return found


def _peer(value: object, direction: Direction) -> Peer:
    everywhere, elsewhere = ("namespaces", "pods"), ("nodes", "networks", "domainNames")
    key, found = _only(value, everywhere if direction is Direction.INGRESS else (*everywhere, *elsewhere))
    if key == "nodes":
        return NodeSelection(_selector(found, "nodes"))
    if key == "networks":
        return Networks(tuple(dict.fromkeys(_each(found, "networks", parse.network))))
    if key == "domainNames":
        return DomainNames(tuple(dict.fromkeys(_each(found, "domainNames", _domain))))
    return _selection(key, found)


def _domain(value: object) -> str:
    name = value.lower().removesuffix(".") if isinstance(value, str) and value.isascii() else ""
    if len(name) > _LONGEST_DOMAIN or not _DOMAIN.fullmatch(name):
        raise Unclear(f"{str(value)[:60]!r} is not a domain name")
    return name


def _selection(key: str, value: object) -> Selection:
    if key == "namespaces":
        return Selection(Selector(), namespaces=_selector(value, "namespaces"))
    pods = object_or_empty(value)
    if pods.get("podSelector") is None:
        raise Unclear("pods has no podSelector")
    spaces = pods.get("namespaceSelector")
    return Selection(
        _selector(pods["podSelector"], "podSelector"),
        namespaces=_selector({} if spaces is None else spaces, "namespaceSelector"),
    )


def _protocol(value: object) -> PortRange | list[NamedPort]:
    key, found = _only(value, (*_SPECIFIC, _NAMED))
    if key == _NAMED:
        if not isinstance(found, str) or not found:
            raise Unclear(f"{_NAMED} is not a name")
        return [NamedPort(one, found) for one in _SPECIFIC.values()]
    _, port = _only(found, ("destinationPort",))
    kind, given = _only(port, ("number", "range"))
    if kind == "number":
        first = last = _port(given)
    else:
        ends = object_or_empty(given)
        first, last = _port(ends.get("start")), _port(ends.get("end"))
        if first >= last:
            raise Unclear(f"the range {first} to {last} does not end after its start")
    return PortRange(_SPECIFIC[key], first, last)


def _port(value: object) -> int:
    if not isinstance(value, int) or not parse.is_port(value):
        raise Unclear(f"the port {str(value)[:20]!r} is not 1 to 65535")
    return value


def _only(value: object, known: tuple[str, ...]) -> tuple[str, object]:
    """The one field that is set. Raises Unclear for none, for several and for one that this version does not have."""
    given = {key: one for key, one in object_or_empty(value).items() if one is not None}
    if len(given) != 1 or not set(given) <= set(known):
        shown = ", ".join(sorted(str(key)[:30] for key in given)[:4])
        raise Unclear(f"it has not exactly one of {', '.join(known)}" + (f", but {shown}" if shown else ""))
    return next(iter(given.items()))


def _selector(value: object, where: str) -> Selector:
    """A selector as strict as upstream's LabelSelectorAsSelector: the API server has not checked it."""
    try:
        found = parse.selector(value)
    except Unclear as error:
        raise Unclear(f"{where}: {error}") from error
    for one in found.requirements:
        if len(one.key) > _LONGEST_KEY or not _KEY.fullmatch(one.key):
            raise Unclear(f"{where}: {one.key[:60]!r} is not a key of a label")
        if bool(one.values) != one.operator.endswith("In"):
            raise Unclear(f"{where}: the operator {one.operator} of {one.key[:60]} with {len(one.values)} values")
        if not all(_VALUE.fullmatch(text) for text in one.values):
            raise Unclear(f"{where}: a value of {one.key[:60]} that no label has")
    return found
