"""Drops in columns, and which of them were asked for. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from policy.drops.plan.document import End, ReportedDrop

HEADS = ("LAST", "NODE", "FROM", "TO", "PORT", "DIRECTION", "REFUSED BY", "COUNT", "WOULD ALLOW IT")
_POLICIES = 3
_DNS = 53
_RULE = re.compile(r"ClusterNetworkPolicy: (\w+) (\S+) of (\S+)( .+)?")
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which drops: of pods of `namespace`, and of the pod `pod` or those whose names begin with it; "" for all."""

    namespace: str = ""
    pod: str = ""

    def fits(self, one: ReportedDrop) -> bool:
        return self._is(one.client) or self._is(one.server)

    @property
    def words(self) -> str:
        """Of which pods, "" for all."""
        if not self.pod:
            return f" from or to pods of namespace {self.namespace}" if self.namespace else ""
        other = f"(of a namespace: `nodewright drops -n {self.pod}`)"
        where = f"of namespace {self.namespace}" if self.namespace else other
        return f" from or to a pod {self.pod} or {self.pod}-... {where}"

    def _is(self, end: End) -> bool:
        namespace, _, name = end.pod.partition("/")
        if self.namespace and namespace != self.namespace:
            return False
        return not self.pod or name == self.pod or name.startswith(f"{self.pod}-")


def row(one: ReportedDrop, node: str, clock: Callable[[float], str]) -> tuple[str, ...]:
    return (
        clock(one.last),
        node,
        _end(one.client),
        _end(one.server),
        one.port_words,
        one.direction.lower(),
        refused_by(one),
        str(one.count),
        one.remedy or "-",
    )


def reasons(every: Iterable[ReportedDrop]) -> list[str]:
    """What each policy said about flows, each once."""
    found = (f"{policy}: {text}" for one in every for policy, text in one.why if text)
    return list(dict.fromkeys(found))


def refused_by(one: ReportedDrop) -> str:
    """The policies; of a ClusterNetworkPolicy the rule, in the words of `trace`."""
    if one.denied:
        found = _RULE.fullmatch(one.denied)
        return "ClusterNetworkPolicy {2} ({0} tier, {1}{3})".format(*found.groups("")) if found else one.denied
    shown = ", ".join(one.policies[:_POLICIES])
    more = len(one.policies) - _POLICIES
    return (f"{shown} and {more} more" if more > 0 else shown) or "a policy that is gone"


def sentence(one: ReportedDrop) -> str:
    """For `why`: what was refused, in one line."""
    packets = "packet" if one.count == 1 else "packets"
    return f"{flow(one)}, {one.count} {packets}: refused by {refused_by(one)} ({one.direction.lower()})"


def allow_dns(one: ReportedDrop) -> str:
    """The command that lets the pods of a policy ask the cluster's DNS, "" where it is something else that is refused.

    Who writes an egress policy for the first time forgets it. The policies' rules add up, so one of them is enough.
    """
    namespace, _, server = one.server.pod.partition("/")
    policy_of, _, policy = (one.policies[0] if one.policies else "").partition("/")
    named = all(map(_NAME.fullmatch, (namespace, policy_of, policy)))
    if one.port != _DNS or one.direction != "Egress" or one.denied or not server or not named:
        return ""
    rule = {
        "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}],
        "ports": [{"port": _DNS, "protocol": "UDP"}, {"port": _DNS, "protocol": "TCP"}],
    }
    first = any("has no egress rule" in text for policy, text in one.why if policy == one.policies[0])
    place, value = ("/spec/egress", [rule]) if first else ("/spec/egress/-", rule)
    patch = json.dumps([{"op": "add", "path": place, "value": value}])
    command = f"kubectl patch networkpolicy {policy} -n {policy_of} --type=json -p '{patch}'"
    return f"To let its pods ask for names: `{command}`."


def flow(one: ReportedDrop) -> str:
    """From where to where."""
    what = "DNS queries of " if one.port == _DNS else ""
    return f"{what}{_end(one.client)} to {_end(one.server)} port {one.port_words}"


def _end(end: End) -> str:
    return end.pod or end.address
