"""What a rule that matched means for the packet, in a sentence. Pure.

It knows the chains of the iptables mode (upstream's names), those of upstream's and of our nftables mode, and those of
the pod network. A rule of anything else has no sentence and is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from cli.explain import cluster_reasons
from cli.explain.facts import Facts
from nodelib.firewall.trace_model import Hop

_COMMENT = re.compile(r'--comment (?:"([^"]*)"|(\S+))|comment "([^"]*)"')
_TO = re.compile(r"--to-destination (\S+)")
_TARGETS = ("DNAT", "SNAT", "MASQUERADE", "REDIRECT", "REJECT", "DROP")
_STATEMENTS = ("dnat to", "snat to", "masquerade", "redirect", "reject", "drop", "service-ips", "service-nodeports")
_ISOLATED = "isolated by "
_POLICY_CHAINS = ("policy-ingress-", "policy-egress-")
_CHANCE = re.compile(r"--probability ([0-9.]+)")


def reason(hop: Hop, facts: Facts) -> str:
    """The meaning of the rule; "" for a rule that none of ours made."""
    for words, explain in _KNOWN:
        if hop.chain.startswith(words):
            return explain(hop, comment_of(hop), facts)
    if hop.table.startswith(("ip ", "ip6 ", "inet ")):
        return _nftables(hop)
    return _jump(hop)


def dropped_by_policy(hop: Hop, facts: Facts) -> str:
    """The meaning of a rule by which a network policy drops the packet, "" for any other."""
    ours = hop.chain.startswith(("group-", *cluster_reasons.CHAINS, *cluster_reasons.TIERS))
    said = reason(hop, facts) if ours else ""
    return said if said.startswith("dropped: ") else ""


def decides(hop: Hop) -> bool:
    """Whether the rule changes the packet or ends its path; a jump to another chain does not."""
    if cluster_reasons.decides(hop):
        return True
    if hop.table.startswith(("ip ", "ip6 ", "inet ")):
        if hop.chain.startswith(_POLICY_CHAINS):
            return _accepts(hop)
        return any(statement in hop.text for statement in _STATEMENTS)
    target = hop.text.rpartition("-j ")[2].split(" ")[0]
    return target in _TARGETS or target.startswith(("KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"))


def comment_of(hop: Hop) -> str:
    """The rule's comment, "" without one."""
    found = _COMMENT.search(hop.text)
    return next((group for group in found.groups() if group), "") if found else ""


def _services(hop: Hop, note: str, facts: Facts) -> str:
    if "REJECT" in hop.text or "DROP" in hop.text:
        return _refused(hop, note, facts)
    if "nodeports" in note:
        return "the address is the node's own, so the NodePorts are checked"
    name, _, kind = note.partition(" ")
    if "KUBE-FW-" in hop.text:
        return f"it is the {kind} of Service {name}, which only its source ranges may use"
    return f"it is the {kind} of Service {name}"


def _node_ports(hop: Hop, note: str, facts: Facts) -> str:
    if hop.table == "filter":
        return f"a health check port: {note}"
    return f"it is the NodePort of Service {note}"


def _refused(hop: Hop, note: str, facts: Facts) -> str:
    word = "refused (ICMP port unreachable)" if "REJECT" in hop.text else "dropped without an answer"
    return f"{word}: {note}"


def _chosen(hop: Hop, note: str, facts: Facts) -> str:
    if "KUBE-MARK-MASQ" in hop.text:
        return "it comes from outside the pod network: its source will be replaced, so that the answer returns here"
    if "--rcheck" in hop.text:
        return f"session affinity: this client used {_endpoint(note, facts)} before"
    chance = _CHANCE.search(hop.text)
    if chance:
        return f"chosen with probability {float(chance[1]):.2f}: {_endpoint(note, facts)}"
    return f"chosen: {_endpoint(note, facts)}"


def _external(hop: Hop, note: str, facts: Facts) -> str:
    if note.startswith("masquerade traffic"):
        return "externalTrafficPolicy Cluster: the source will be replaced, since any node may answer"
    if note.startswith("masquerade LOCAL"):
        return "sent by this node: its source will be replaced"
    if note.startswith(("pod traffic", "route LOCAL")):
        return "from a pod or this node: treated like the cluster IP, externalTrafficPolicy Local does not apply"
    if "KUBE-SVL-" in hop.text:
        return "externalTrafficPolicy Local: only endpoints of this node"
    return "to one of its endpoints"


def _firewall(hop: Hop, note: str, facts: Facts) -> str:
    if "will be dropped" in note:
        return "its source is in none of loadBalancerSourceRanges"
    return "its source is in one of loadBalancerSourceRanges"


def _endpoint_chain(hop: Hop, note: str, facts: Facts) -> str:
    if "KUBE-MARK-MASQ" in hop.text:
        return "the endpoint reaches itself through the Service: its source will be replaced (hairpin)"
    found = _TO.search(hop.text)
    remembered = ", and the client is remembered" if "--set" in hop.text else ""
    return f"destination becomes {facts.named(found[1]) if found else '?'}{remembered}"


def _postrouting(hop: Hop, note: str, facts: Facts) -> str:
    if "RETURN" in hop.text:
        return "not marked: its source is not changed"
    return "source becomes this node's address" if "MASQUERADE" in hop.text else "the mark is removed"


def _pod_network(hop: Hop, note: str, facts: Facts) -> str:
    if "MASQUERADE" in hop.text:
        return f"source becomes this node's address ({note or 'pod network'})"
    if "DNAT" in hop.text:
        found = _TO.search(hop.text)
        return f"{note or 'hostPort'}: destination becomes {facts.named(found[1]) if found else '?'}"
    if "RETURN" in hop.text:
        return "stays inside the cluster: its source is not changed"
    if "ACCEPT" in hop.text:
        return "pod traffic is forwarded"
    return note


def _overlay(hop: Hop, note: str, facts: Facts) -> str:
    if "DROP" in hop.text:
        return "packets of pods do not go to the overlay's own port"
    return "it is for a pod" if "RETURN" in hop.text else note


def _endpoint(note: str, facts: Facts) -> str:
    to = note.partition(" -> ")[2]
    return facts.named(to) if to else "an endpoint"


def _jump(hop: Hop) -> str:
    target = hop.text.rpartition(" -j ")[2].split(" ")[0]
    note = comment_of(hop)
    if target.startswith(("KUBE-", "NODEWRIGHT-")):
        return f"jump to {target}" + (f" ({note})" if note else "")
    return note


def _nftables(hop: Hop) -> str:
    chain, text = hop.chain, _COMMENT.sub("", hop.text)  # a comment may name any statement
    if "masquerade" in text.split():
        return "source becomes this node's address"
    if "no-endpoint" in text:
        return "the Service has no usable endpoint" + (": refused" if "reject" in text else ": dropped")
    if "reject" in text:
        return "refused"
    if "drop" in text.split(" "):
        return "dropped" + (": its source is in none of loadBalancerSourceRanges" if "firewall" in chain else "")
    if "dnat to" in text:
        return "destination becomes one of the Service's endpoints, chosen by chance"
    if "meta mark set" in text or "mark-for-masquerade" in text:
        return "its source will be replaced, so that the answer returns here"
    if "service-ips" in text or "service-nodeports" in text:
        return "it is an address of a Service"
    return ""


def _policy(hop: Hop, note: str, facts: Facts) -> str:
    return f"NetworkPolicy {note} allows it" if _accepts(hop) else ""


def _accepts(hop: Hop) -> bool:
    return "accept" in _COMMENT.sub("", hop.text).split()  # a comment may name any statement


def _policies(hop: Hop, note: str, facts: Facts) -> str:
    if "drop" not in _COMMENT.sub("", hop.text).split():
        return ""
    if not note.startswith(_ISOLATED):
        return _stray(hop, note, facts)
    direction = "ingress" if hop.chain.startswith("group-ingress") else "egress"
    names = ", ".join(note.removeprefix(_ISOLATED).split())  # a comment in the kernel has no commas
    return f"dropped: the pod is {_ISOLATED}{names}, and no rule of theirs allows this ({direction})"


def _stray(hop: Hop, note: str, facts: Facts) -> str:
    return f"dropped: {note}" if "drop" in _COMMENT.sub("", hop.text).split() else ""


_KNOWN: tuple[tuple[str, Callable[[Hop, str, Facts], str]], ...] = (
    ("KUBE-SERVICES", _services),
    ("KUBE-EXTERNAL-SERVICES", _refused),
    ("KUBE-PROXY-FIREWALL", _refused),
    ("KUBE-NODEPORTS", _node_ports),
    ("KUBE-SVC-", _chosen),
    ("KUBE-SVL-", _chosen),
    ("KUBE-EXT-", _external),
    ("KUBE-FW-", _firewall),
    ("KUBE-SEP-", _endpoint_chain),
    ("KUBE-MARK-MASQ", lambda hop, note, facts: "marked"),
    ("KUBE-POSTROUTING", _postrouting),
    ("KUBE-FORWARD", lambda hop, note, facts: "forwarding of Service traffic is allowed"),
    ("NODEWRIGHT-OVERLAY", _overlay),
    ("NODEWRIGHT-", _pod_network),
    ("policy-ingress-", _policy),
    ("policy-egress-", _policy),
    ("group-ingress-", _policies),
    ("group-egress-", _policies),
    ("stray", _stray),
    *((chain, cluster_reasons.cluster_reason) for chain in (*cluster_reasons.CHAINS, *cluster_reasons.TIERS)),
)
