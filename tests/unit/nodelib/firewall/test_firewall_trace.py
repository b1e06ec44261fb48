"""Packets are traced through iptables chains."""

from __future__ import annotations

import pytest

from nodelib.errors import Invalid
from nodelib.firewall.parse import parse_tables
from nodelib.firewall.trace import Node, Outcome, Packet, trace
from tests.fakes.fake_iptables import FakeIptables

NODE = Node(frozenset({"192.0.2.1"}))


def outcomes(text: str, packet: Packet, node: Node = NODE) -> list[Outcome]:
    fake = FakeIptables()
    fake.load(text)
    return list(trace(fake.content(), packet, node))


def test_dnat_is_seen_by_the_filter_and_the_mark_by_postrouting() -> None:
    text = """*filter
-A FORWARD -d 10.0.0.5 -p tcp --dport 8080 -j ACCEPT
-A FORWARD -j DROP
COMMIT
*nat
:MINE - [0:0]
-A PREROUTING -d 192.0.2.1 -p tcp --dport 80 -j MINE
-A MINE -s 198.51.100.0/24 -j MARK --or-mark 0x4000
-A MINE -p tcp -j DNAT --to-destination 10.0.0.5:8080
-A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A POSTROUTING -j MASQUERADE
COMMIT
"""
    assert outcomes(text, Packet("198.51.100.7", "192.0.2.1", 80)) == [Outcome("ACCEPT", "10.0.0.5:8080", True, True)]
    assert outcomes(text, Packet("203.0.113.7", "192.0.2.1", 80)) == [Outcome("ACCEPT", "10.0.0.5:8080", True, False)]
    assert outcomes(text, Packet("203.0.113.7", "10.9.9.9", 80)) == [Outcome("DROP", "10.9.9.9:80", False, False)]
    assert outcomes(text, Packet("203.0.113.7", "192.0.2.1", 81)) == [Outcome("ACCEPT", "192.0.2.1:81", False, False)]


def test_chance_splits_the_way() -> None:
    text = """*nat
-A OUTPUT -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.0.0.1
-A OUTPUT -j DNAT --to-destination [fd00::2]:9
COMMIT
"""
    found = outcomes(text, Packet("192.0.2.1", "10.96.0.1", 80, interface=""))
    assert [one.to for one in found] == ["10.0.0.1:80", "[fd00::2]:9"]
    assert str(found[0].trail[0]).startswith("nat OUTPUT -m statistic")


def test_return_goes_on_in_the_calling_chain() -> None:
    text = "*filter\n:A - [0:0]\n-A INPUT -j A\n-A INPUT -j REJECT\n-A A -s 1.2.3.4 -j RETURN\n-A A -j ACCEPT\nCOMMIT\n"
    assert [one.verdict for one in outcomes(text, Packet("1.2.3.4", "192.0.2.1", 1))] == ["REJECT"]
    assert [one.verdict for one in outcomes(text, Packet("1.2.3.5", "192.0.2.1", 1))] == ["ACCEPT"]


def test_a_circle_and_an_unknown_match_are_errors() -> None:
    with pytest.raises(Invalid, match="circle"):
        outcomes("*filter\n:A - [0:0]\n-A INPUT -j A\n-A A -j A\nCOMMIT\n", Packet("1.2.3.4", "192.0.2.1", 1))
    with pytest.raises(Invalid, match="--match-set"):
        outcomes("*filter\n-A INPUT -m set --match-set x src -j DROP\nCOMMIT\n", Packet("1.2.3.4", "192.0.2.1", 1))


def test_a_target_that_only_looks_is_passed_where_anything_may_be_found() -> None:
    fake = FakeIptables()
    fake.load("*filter\n-A INPUT -j LOG\n-A INPUT -j DROP\nCOMMIT\n")
    found = list(trace(fake.content(), Packet("198.51.100.7", "192.0.2.1", 80), NODE, lenient=True))
    assert [one.verdict for one in found] == ["DROP"]


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [("", "DROP"), ("-A FORWARD -p tcp -j ACCEPT\n", "ACCEPT"), ("-A FORWARD -p udp -j ACCEPT\n", "DROP")],
    ids=["no rule", "a rule accepts", "no rule matches"],
)
def test_the_policy_of_a_chain_is_its_last_word(rule: str, verdict: str) -> None:
    saved = f"*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [3:180]\n:OUTPUT ACCEPT [0:0]\n{rule}COMMIT\n"
    found = list(trace(parse_tables(saved), Packet("198.51.100.7", "10.0.0.5", 80), NODE))
    assert [one.verdict for one in found] == [verdict]
