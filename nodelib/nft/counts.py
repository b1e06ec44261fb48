"""The counters among the expressions of a rule, as the kernel dumps them (linux/netfilter/nf_tables.h). Pure."""

from __future__ import annotations

from nodelib.netlink.framing import attributes, text_attribute

_NAME = text_attribute(1, "counter")  # NFTA_EXPR_NAME, which comes first
_DATA, _PACKETS = 2, 2  # NFTA_EXPR_DATA, NFTA_COUNTER_PACKETS


def without(expressions: bytes) -> bytes:
    """The expressions without the numbers of their counters, which change with every packet.

    Audits do that for every rule, so that most rules are not taken apart.
    """
    if _NAME not in expressions:
        return expressions
    return b"".join([_NAME if body.startswith(_NAME) else body for _, body in attributes(expressions)])


def packets(expressions: bytes) -> int:
    """What the counters have counted."""
    found = [dict(attributes(body)) for _, body in attributes(expressions) if body.startswith(_NAME)]
    return sum(int.from_bytes(dict(attributes(one.get(_DATA, b""))).get(_PACKETS, b""), "big") for one in found)
