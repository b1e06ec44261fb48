"""Marks that spare the packets of a connection the rules that have let one of its packets pass. Pure.

What the rules say of a packet follows from its connection, so that it is the same for all of them until the rules or
their sets change. Each transaction is a *generation*, a number that is written into three chains:

- `known`, at the beginning of `ingress`, accepts packets of a connection with the mark "judged in this generation", and
  gives any other the mark "being judged in this generation". `passed` accepts the former at the beginning of `egress`.
- `judged`, a chain with a hook behind both, turns "being judged" into "judged".

So a packet that met the rules of the last generation at first marks nothing when it comes to `judged` of the next one,
but for one case: a second packet of the connection has just been given the new mark, and is still on its way to the
rule that drops it. That rule takes the mark away. What is refused therefore never keeps it.

A connection that a helper of conntrack's expects (the data of FTP, where an administrator has assigned one) begins with
the mark of the one that announced it, though rules say other things of its port. Its first packets are "related": no
mark spares these the rules.

The mark is 30 bits of conntrack's, without 0x4000 and 0x8000, which are kube-proxy's in the mark of packets.
Generations follow the clock, so that those of the next daemon are others; they come again after 97 days, longer than
conntrack keeps a silent connection (5 days by default).
"""

from __future__ import annotations

from nodelib.nft.actions import MarkConnection, Verdict
from nodelib.nft.matches import Connection, ConnectionMarked
from nodelib.nft.rules import NftRule, rule

KNOWN, PASSED, JUDGED = "known", "passed", "judged"
CHAINS = (KNOWN, PASSED, JUDGED)
PRIORITY = 12
MASK = 0xFFFF3FFF
FORGOTTEN = MarkConnection(0, MASK)
_UNDER_WAY = 0x2000
_LOW = 0x1FFF  # the bits of a generation below those of kube-proxy
_GENERATIONS = 1 << 29
_IN_A_SECOND = 64


def next_generation(last: int, now: float) -> int:
    """The generation after `last` (0: there was none), at a time in seconds.

    Never 0, which is the mark of a connection that nobody has judged.
    """
    follows = last % (_GENERATIONS - 1) + 1
    by_clock = int(now * _IN_A_SECOND) % (_GENERATIONS - 1) + 1
    # A clock that has been set back, or so many changes in a second: on from the last one.
    ahead = 0 < (by_clock - follows) % _GENERATIONS < _GENERATIONS // 2
    return by_clock if ahead or not last else follows


def chains(generation: int) -> dict[str, tuple[NftRule, ...]]:
    """The rules of the three chains."""
    done = generation >> 13 << 16 | generation & _LOW
    judged, under_way = (ConnectionMarked(one, MASK) for one in (done, done | _UNDER_WAY))
    note = "its connection has been judged"
    known = rule(judged, Connection("state", "new,established"), Verdict("accept"), comment=note)
    return {
        KNOWN: (known, rule(MarkConnection(done | _UNDER_WAY, MASK))),
        PASSED: (rule(judged, Verdict("accept"), comment=note),),
        JUDGED: (rule(under_way, MarkConnection(done, MASK)),),
    }
