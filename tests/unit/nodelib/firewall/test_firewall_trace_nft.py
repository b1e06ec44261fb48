"""nftables rules walked: the shapes of upstream's table and of shared maps, as `nft -j` prints them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from nodelib.errors import Invalid
from nodelib.firewall.trace import MOST_WAYS, Node, Outcome, Packet, trace
from nodelib.firewall.trace_nft import bases
from nodelib.json_values import Json

NODE = Node(frozenset({"192.0.2.1"}))
DADDR = {"payload": {"protocol": "ip", "field": "daddr"}}
SADDR = {"payload": {"protocol": "ip", "field": "saddr"}}
PROTOCOL = {"meta": {"key": "l4proto"}}
DPORT = {"payload": {"protocol": "th", "field": "dport"}}
FRONT = {"concat": [DADDR, PROTOCOL, DPORT]}
MARK = {"meta": {"key": "mark"}}


def table(chains: dict[str, tuple[str, ...]], rules: list[tuple[str, list[Json]]], maps: dict[str, list[Any]]) -> Json:
    """`chains`: (type, hook, priority) or () by name."""
    items: list[Json] = [{"metainfo": {}}, {"table": {"family": "ip", "name": "t"}}]
    for name, hook in chains.items():
        based = {"type": hook[0], "hook": hook[1], "prio": int(hook[2])} if hook else {}
        items.append({"chain": {"family": "ip", "table": "t", "name": name, **based}})
    for name, elements in maps.items():
        items.append({"map": {"family": "ip", "table": "t", "name": name, "elem": elements}})
    items += [{"rule": {"family": "ip", "table": "t", "chain": chain, "expr": expr}} for chain, expr in rules]
    return {"nftables": items}


def outcomes(ruleset: Json, packet: Packet, *, lenient: bool = False) -> list[Outcome]:
    return list(trace({}, packet, NODE, more=bases(ruleset, "ip", lenient=lenient), lenient=lenient))


SHARED = table(
    {
        "pre": ("nat", "prerouting", "-100"),
        "post": ("nat", "postrouting", "100"),
        "forward": ("filter", "forward", "0"),
        "pick-2": (),
        "reject-chain": (),
    },
    [
        (
            "pre",
            [
                {"match": {"op": "==", "left": DADDR, "right": "@ips"}},
                {"match": {"op": "!=", "left": SADDR, "right": {"prefix": {"addr": "10.244.0.0", "len": 16}}}},
                {"mangle": {"key": MARK, "value": {"|": [MARK, 0x4000]}}},
            ],
        ),
        ("pre", [{"vmap": {"key": FRONT, "data": "@services"}}]),
        (
            "pick-2",
            [
                {
                    "dnat": {
                        "family": "ip",
                        "addr": {
                            "map": {
                                "key": {"concat": [*FRONT["concat"], {"numgen": {"mode": "random", "mod": 2}}]},
                                "data": "@endpoints",
                            }
                        },
                    }
                }
            ],
        ),
        (
            "forward",
            [
                {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "new"}},
                {"vmap": {"key": FRONT, "data": "@empty"}},
            ],
        ),
        ("reject-chain", [{"reject": None}]),
        (
            "post",
            [
                {"match": {"op": "!=", "left": {"&": [MARK, 0x4000]}, "right": 0}},
                {"masquerade": {"flags": "fully-random"}},
            ],
        ),
    ],
    {
        "ips": ["10.96.0.1"],
        "services": [[{"concat": ["10.96.0.1", "tcp", 80]}, {"goto": {"target": "pick-2"}}]],
        "endpoints": [
            [{"concat": ["10.96.0.1", "tcp", 80, 0]}, {"concat": ["10.244.0.5", 8080]}],
            [{"concat": ["10.96.0.1", "tcp", 80, 1]}, {"concat": ["10.244.1.6", 8080]}],
        ],
        "empty": [[{"concat": ["10.96.0.9", "tcp", 80]}, {"goto": {"target": "reject-chain"}}]],
    },
)


def test_chance_through_a_shared_map_and_the_mark_of_a_client_outside() -> None:
    inside = outcomes(SHARED, Packet("10.244.0.7", "10.96.0.1", 80))
    assert inside == [
        Outcome("ACCEPT", "10.244.0.5:8080", True, False),
        Outcome("ACCEPT", "10.244.1.6:8080", True, False),
    ]
    outside = outcomes(SHARED, Packet("203.0.113.7", "10.96.0.1", 80))
    assert [one.masqueraded for one in outside] == [True, True]
    assert "vmap @services -> goto pick-2" in str(outside[0].trail[1])


def test_another_port_passes_and_a_service_without_endpoints_is_refused() -> None:
    assert outcomes(SHARED, Packet("10.244.0.7", "10.96.0.1", 81)) == [Outcome("ACCEPT", "10.96.0.1:81", False, False)]
    refused = outcomes(SHARED, Packet("10.244.0.7", "10.96.0.9", 80))
    assert [one.verdict for one in refused] == ["REJECT"]


def test_upstreams_anonymous_map() -> None:
    choice = {"set": [[0, {"concat": ["10.0.0.1", 1]}], [1, {"concat": ["10.0.0.2", 2]}]]}
    rule = {"dnat": {"addr": {"map": {"key": {"numgen": {"mode": "random", "mod": 2, "offset": 0}}, "data": choice}}}}
    ruleset = table({"out": ("nat", "output", "-100")}, [("out", [rule])], {})
    assert [one.to for one in outcomes(ruleset, Packet("192.0.2.1", "10.96.0.1", 80, interface=""))] == [
        "10.0.0.1:1",
        "10.0.0.2:2",
    ]


def test_a_policy_of_drop_and_iptables_own_tables() -> None:
    ruleset = table({"in": ("filter", "input", "0")}, [], {})
    ruleset["nftables"][2]["chain"]["policy"] = "drop"
    assert [one.verdict for one in outcomes(ruleset, Packet("203.0.113.7", "192.0.2.1", 22))] == ["DROP"]
    for item in ruleset["nftables"][1:]:
        for obj in item.values():
            obj.update({"table": "filter"} if "table" in obj else {"name": "filter"})
    assert [one.verdict for one in outcomes(ruleset, Packet("203.0.113.7", "192.0.2.1", 22))] == ["ACCEPT"]


def test_an_unknown_match_is_an_error_or_perhaps() -> None:
    odd = {"match": {"op": "==", "left": {"meta": {"key": "cgroup"}}, "right": 1}}
    ruleset = table({"in": ("filter", "input", "0")}, [("in", [odd, {"drop": None}])], {})
    with pytest.raises(Invalid, match="cgroup"):
        outcomes(ruleset, Packet("203.0.113.7", "192.0.2.1", 22))
    verdicts = {one.verdict for one in outcomes(ruleset, Packet("203.0.113.7", "192.0.2.1", 22), lenient=True)}
    assert verdicts == {"ACCEPT", "DROP"}


def test_a_connection_is_matched_by_who_began_and_who_answers_it() -> None:
    """As the rules for network policies do: the destination as translated, and ranges of protocols."""
    answers = {"ct": {"key": "saddr", "family": "ip", "dir": "reply"}}
    began = {"ct": {"key": "saddr", "family": "ip", "dir": "original"}}
    protocol, port = {"ct": {"key": "protocol", "dir": "original"}}, {"ct": {"key": "proto-src", "dir": "reply"}}
    inside = {"concat": [{"prefix": {"addr": "10.0.0.0", "len": 24}}, {"range": [0, 255]}]}
    ports = {"concat": ["tcp", {"range": [8000, 8080]}]}
    ruleset = table(
        {"pre": ("nat", "prerouting", "-100"), "in": ("filter", "forward", "10"), "group": ()},
        [
            ("pre", [{"dnat": {"family": "ip", "addr": "10.0.0.9", "port": 8080}}]),
            ("in", [{"vmap": {"key": answers, "data": "@isolated"}}]),
            (
                "group",
                [
                    {"match": {"op": "==", "left": {"concat": [protocol, port]}, "right": "@ports"}},
                    {"match": {"op": "==", "left": {"concat": [began, protocol]}, "right": "@block"}},
                    {"accept": None},
                ],
            ),
            ("group", [{"drop": None}]),
        ],
        {"isolated": [["10.0.0.9", {"goto": {"target": "group"}}]], "ports": [ports], "block": [inside]},
    )
    for source, verdict in (("10.0.0.7", "ACCEPT"), ("10.0.1.7", "DROP")):
        (found,) = outcomes(ruleset, Packet(source, "10.96.0.1", 80, "tcp", "eth0"))
        assert found.verdict == verdict


def test_what_is_in_no_set_is_found_out_without_a_look_at_every_element() -> None:
    """Whoever writes EndpointSlices chooses how many elements there are, and how many endpoints: `trace` took hours."""
    elements: list[Any] = [{"concat": [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", "tcp", 80]} for n in range(50_000)]
    elements.append({"concat": [{"prefix": {"addr": "192.0.2.0", "len": 24}}, "tcp", 80]})
    many = 2000
    ends = [
        [{"concat": ["10.9.0.7", "tcp", 80, n]}, {"concat": [f"172.16.{n >> 8}.{n & 255}", 8080]}] for n in range(many)
    ]
    chosen = {"concat": [*FRONT["concat"], {"numgen": {"mode": "random", "mod": many}}]}
    dnat = {"dnat": {"family": "ip", "addr": {"map": {"key": chosen, "data": "@endpoints"}}}}
    inside = {"match": {"op": "==", "left": FRONT, "right": "@large"}}
    ruleset = table(
        {"pre": ("nat", "prerouting", "-100"), "forward": ("filter", "forward", "0")},
        [("pre", [dnat]), ("forward", [inside, {"drop": None}])],
        {"endpoints": ends, "large": elements},
    )
    began = time.process_time()
    found = outcomes(ruleset, Packet("10.244.1.1", "10.9.0.7", 80))
    assert time.process_time() - began < 3.0
    assert len(found) == MOST_WAYS and {one.verdict for one in found} == {"ACCEPT"}
    assert outcomes(ruleset, Packet("10.244.1.1", "10.0.0.9", 80))[0].verdict == "DROP"
    assert outcomes(ruleset, Packet("10.244.1.1", "192.0.2.9", 80))[0].verdict == "DROP"
