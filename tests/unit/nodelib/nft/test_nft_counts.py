"""What is told of rules from their expressions: their counters, and everything but these."""

from __future__ import annotations

from nodelib.firewall.objects import Family
from nodelib.nft import counts
from nodelib.nft.actions import Verdict
from nodelib.nft.expressions import expression, u64
from nodelib.nft.keys import Field
from nodelib.nft.matches import InSet


def rule(numbers: tuple[int, ...] = (), *, of: str = "peers", then: str = "accept") -> bytes:
    """As the kernel dumps it, with counters that have counted so many packets."""
    match = InSet((Field("saddr"),), of).code(Family.IPV4)
    counters = b"".join(expression("counter", u64(1, 60 * one) + u64(2, one)) for one in numbers)
    return match + counters + Verdict(then).code(Family.IPV4)


def test_packets_of_all_counters() -> None:
    assert counts.packets(rule((3, 1 << 40))) == 3 + (1 << 40)
    assert counts.packets(rule()) == 0


def test_what_was_counted_makes_no_difference_and_everything_else_does() -> None:
    assert counts.without(rule((1,))) == counts.without(rule((1 << 50,)))
    others = [rule(), rule((1, 1)), rule((1,), of="others"), rule((1,), then="drop"), rule(of="others")]
    assert len({counts.without(one) for one in (rule((1,)), *others)}) == 6
    # A name of something else.
    assert counts.without(rule((1,), of="counter")) != counts.without(rule((1,), of="counters"))
    assert counts.packets(rule((7,), of="counter")) == 7
