"""What a rule of a ClusterNetworkPolicy means for the packet, in a sentence. Pure.

`policy/plan/cluster_layout.py` makes the chains, and the comments that say tier, direction, number and policy.
"""

from __future__ import annotations

import re

from cli.explain.facts import Facts
from nodelib.firewall.trace_model import Hop

CHAINS = tuple(f"{kind}-{way}-" for kind in ("cluster", "deny") for way in ("ingress", "egress"))
TIERS = ("tier-admin-", "tier-baseline-")
_LABEL = re.compile(r"(Admin|Baseline) ((?:in|e)gress\[\d+\]) of (\S+)(?: (.+))?")
_NEXT = {
    "Admin": "passes it on to the NetworkPolicies",
    "Baseline": "leaves it to the default, which allows it",
}


def decides(hop: Hop) -> bool:
    """Whether a rule of a ClusterNetworkPolicy has an effect; jumps to its chains have none."""
    return hop.chain.startswith((*CHAINS, *TIERS)) and _effect(hop) in ("accept", "drop", "return")


def cluster_reason(hop: Hop, note: str, facts: Facts) -> str:
    """The sentence; "" for a jump."""
    found, effect = _LABEL.fullmatch(note), _effect(hop)
    if found is None:
        return ""
    tier, where, policy, name = found.groups()
    rule = f"{tier} tier, {where}" + (f" {name}" if name else "")
    if effect == "drop":
        return f"dropped: ClusterNetworkPolicy {policy} denies it ({rule})"
    if effect == "accept":
        return f"ClusterNetworkPolicy {policy} accepts it ({rule})"
    if effect == "return":
        return f"ClusterNetworkPolicy {policy} {_NEXT[tier]} ({rule})"
    return ""


def _effect(hop: Hop) -> str:
    """The last word of the rule before its comment."""
    words = hop.text.partition(' comment "')[0].split()
    return words[-1] if words else ""
