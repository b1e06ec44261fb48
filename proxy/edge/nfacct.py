"""Named packet counters of the kernel (nfnetlink_acct) that rules can increment. Blocking, for microseconds."""

from __future__ import annotations

import errno

from nodelib.netlink import netfilter
from nodelib.netlink.framing import attributes, text_attribute

_ACCT_NEW = (7 << 8) | 0  # NFNL_SUBSYS_ACCT, NFNL_MSG_ACCT_NEW; linux/netfilter/nfnetlink_acct.h
_ACCT_GET = (7 << 8) | 1
_NAME, _PACKETS = 1, 2


def ensure(name: str) -> bool:
    """Create the counter. False: the kernel has no such counters or does not let us."""
    try:
        netfilter.ask(_ACCT_NEW, netfilter.ACK | netfilter.CREATE | netfilter.EXCL, text_attribute(_NAME, name))
    except OSError as error:
        return error.errno == errno.EEXIST
    return True


def packets(name: str) -> int | None:
    """How many packets it has counted; None when it does not exist."""
    try:
        answer = netfilter.ask(_ACCT_GET, 0, text_attribute(_NAME, name))
    except OSError:
        return None
    count = dict(attributes(answer, netfilter.GENMSG)).get(_PACKETS)
    return int.from_bytes(count, "big") if count is not None else None
