"""What events say of pods and policies, and how often. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from nodelib.text import first_of, one_line
from policy.drops.model import Drop
from policy.drops.plan.document import allows
from policy.model import Direction, Name, Problem
from policy.plan import words

_LONGEST = 900  # bytes of a note
_SHOWN = 5
_SHOWN_PROBLEMS, _LONGEST_PROBLEM = 3, 160  # of one policy, and bytes


class Pace:
    """A few at once, then one in every `seconds`; for one key no more than one in `apart` seconds. Times as given."""

    def __init__(self, *, at_once: int, seconds: float, apart: float, keys: int = 1024) -> None:
        self._at_once, self._seconds, self._apart, self._keys = at_once, seconds, apart, keys
        self._left, self._at = float(at_once), 0.0
        self._last: OrderedDict[object, float] = OrderedDict()

    def may(self, key: object, now: float) -> bool:
        """Whether it may happen now; if so, it counts."""
        last = self._last.get(key)
        if last is not None and now - last < self._apart:
            return False
        self._left = min(self._at_once, self._left + max(0.0, now - self._at) / self._seconds)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        self._last[key] = now
        self._last.move_to_end(key)
        if len(self._last) > self._keys:
            self._last.popitem(last=False)
        return True


def whom(drop: Drop) -> Name | None:
    """The pod that the event is about: who wanted to connect, or else who could not be reached."""
    return drop.client or drop.server


def refused(drop: Drop, about: Name) -> str:
    """A refused packet for the readers of one namespace: objects of others are not named."""
    flow, port = drop.flow, words.port(drop.flow.port, drop.flow.protocol)
    if about == drop.client:
        ends = f"packets of this pod to {_end(str(flow.server), drop.server, about)} port {port} are refused"
    else:
        ends = f"packets from {_end(str(flow.client), drop.client, about)} to port {port} of this pod are refused"
    if drop.denied:
        return one_line(f"{ends} by {drop.denied}.", _LONGEST)
    own = [str(one) for one in drop.policies if one.namespace == about.namespace]
    isolated = "this pod" if (flow.direction is Direction.EGRESS) == (about == drop.client) else "that pod"
    side = flow.direction.lower()
    if not own:
        where = sorted({one.namespace for one in drop.policies})
        by = f"NetworkPolicies of namespace {where[0]}" if where else "NetworkPolicies"
        return one_line(f"{ends}: {by} isolate {isolated} ({side}), and none of them allows it.", _LONGEST)
    shown = first_of(own, _SHOWN)
    would = allows(drop)
    more = f" It would be allowed by {would}." if would else ""
    what = "NetworkPolicy" if len(own) == 1 else "NetworkPolicies"
    verb = "isolates" if len(own) == 1 else "isolate"
    return one_line(f"{ends}: {what} {shown} {verb} {isolated} ({side}), and no rule allows it.{more}", _LONGEST)


def summary(problems: Sequence[Problem]) -> str:
    """All that was left out of a policy in one text, which says how much of it is not said."""
    text = "; ".join(one_line(one.message, _LONGEST_PROBLEM) for one in problems[:_SHOWN_PROBLEMS])
    return text + (f"; and {len(problems) - _SHOWN_PROBLEMS} more" if len(problems) > _SHOWN_PROBLEMS else "")


def left_out(policy: Name, message: str) -> str:
    """For a policy, and for a pod that it isolates."""
    return one_line(f"NetworkPolicy {policy.name}: {message} (what it would allow stays closed)", _LONGEST)


def too_large(policy: Name) -> str:
    """Of a policy that has no room. Without a namespace it is a ClusterNetworkPolicy."""
    if policy.namespace:
        return (
            f"NetworkPolicy {policy.name}: all of its rules are left out, because the policies of this namespace are "
            "too many or too large for a node (what they would allow stays closed)"
        )
    return (
        f"ClusterNetworkPolicy {policy.name}: its rules are left out, because all ClusterNetworkPolicies together are "
        "too many or too large for a node: where it denies or passes anything it denies everything"
    )


def _end(address: str, name: Name | None, about: Name) -> str:
    if name is None:
        return address
    if name.namespace == about.namespace:
        return f"pod {name.name} ({address})"
    return f"a pod of namespace {name.namespace} ({address})"
