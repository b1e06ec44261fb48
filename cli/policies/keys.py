"""The rows of the page of `view` for the network policies that a rule or a drop names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from view.model.objects import CLUSTER_POLICY, POLICY, row_key

_MOST = 8
_OF_CLUSTER = re.compile(r"(?:Admin|Baseline) (?:in|e)gress\[\d+\] of (\S+)")
_ISOLATED = "isolated by "
_OWN = ("policy-ingress-", "policy-egress-")


def policy_keys(chain: str, note: str) -> tuple[str, ...]:
    """Those of a rule in the table of policies: of its chain and its comment."""
    found = _OF_CLUSTER.match(note)
    if found is not None:
        return (row_key(CLUSTER_POLICY, ("", found[1])),)
    if note.startswith(_ISOLATED) and chain.startswith("group-"):
        return named(note.removeprefix(_ISOLATED).split())
    return named(note.split()[:1]) if chain.startswith(_OWN) else ()


def refusing(policies: Iterable[str], denied: str) -> tuple[str, ...]:
    """Those of a drop: the rule of a ClusterNetworkPolicy, or the NetworkPolicies that isolate the pod."""
    if not denied:
        return named(policies)
    return policy_keys("", denied.partition(": ")[2])


def named(names: Iterable[str]) -> tuple[str, ...]:
    """Of "namespace/name"."""
    return tuple(_keys(names))[:_MOST]


def _keys(names: Iterable[str]) -> Iterator[str]:
    for one in names:
        namespace, _, name = one.partition("/")
        if namespace and name:
            yield row_key(POLICY, (namespace, name))
