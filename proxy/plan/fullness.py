"""How full the table of connection tracking is. Pure."""

from __future__ import annotations

from enum import Enum

_NEARLY, _FULL, _WELL = 0.9, 0.99, 0.8


class Fullness(Enum):
    """The value is what a user reads."""

    WELL = "room again"
    NEARLY = (
        "nearly full. New connections will be dropped: raise net.netfilter.nf_conntrack_max on the host "
        "(conntrack.min and maxPerCore of the configuration), or find who opens so many (conntrack -L)"
    )
    FULL = (
        "full. New connections are dropped, those that live go on: raise net.netfilter.nf_conntrack_max on the host "
        "(conntrack.min and maxPerCore of the configuration), or find who opens so many (conntrack -L)"
    )


def judge(count: int, maximum: int, last: Fullness) -> Fullness:
    """`last` is kept between the thresholds, so that a table at one of them is not told of again and again."""
    share = count / maximum if maximum > 0 else 0.0
    if share >= _FULL:
        return Fullness.FULL
    if share >= _NEARLY:
        return last if last is Fullness.FULL else Fullness.NEARLY
    return last if share > _WELL else Fullness.WELL
