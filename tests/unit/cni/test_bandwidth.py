"""Bandwidth limits: what a runtime may ask for, the token bucket of it, and what ADD, CHECK and DEL do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cni.model import AttachmentKey, Bucket
from cni.plan.bandwidth import bucket
from cni.plan.names import host_ifname, ifb_ifname
from cni.spec.configuration import parse_conf
from cni.spec.errors import CNIError
from tests.fakes.fake_netlink import NODE
from tests.unit.cni.test_operations import Bench

MEGABIT = 10**6


@pytest.mark.parametrize(
    ("rate", "burst", "expected"),
    [
        pytest.param(0, 0, None, id="no limit"),
        pytest.param(80 * MEGABIT, 16 * MEGABIT, Bucket(10_000_000, 2_000_000, 2_250_000), id="both given"),
        pytest.param(80 * MEGABIT, (1 << 32) - 1, Bucket(10_000_000, 1_000_000, 1_250_000), id="containerd's no burst"),
        pytest.param(80 * MEGABIT, 0, Bucket(10_000_000, 1_000_000, 1_250_000), id="no burst"),
        pytest.param(1000, 0, Bucket(125, 65536, 65539), id="slow: still one packet at once"),
        pytest.param(10**12, 0, Bucket(125 * 10**9, (1 << 32) - 1, (1 << 32) - 1), id="beyond 32 bits"),
        pytest.param(7, 0, Bucket(1, 65536, 65536), id="below a byte a second"),
    ],
)
def test_bucket(rate: int, burst: int, expected: Bucket | None) -> None:
    assert bucket(rate, burst) == expected


@pytest.mark.parametrize(
    ("given", "ingress", "egress"),
    [
        pytest.param({"ingressRate": 8, "ingressBurst": 16}, (8, 16), (0, 0), id="one direction"),
        pytest.param({"IngressRate": 8, "IngressBurst": 1, "EgressRate": 9, "EgressBurst": 1}, (8, 1), (9, 1), id="Go"),
        pytest.param({}, (0, 0), (0, 0), id="empty"),
    ],
)
def test_what_a_runtime_asks_for(given: dict[str, int], ingress: tuple[int, int], egress: tuple[int, int]) -> None:
    conf = Bench.make_conf(ipam={"subnet": "10.1.0.0/29"}, runtimeConfig={"bandwidth": given})
    assert (conf.ingress, conf.egress) == (ingress, egress)


@pytest.mark.parametrize(
    "given", [{"ingressRate": -1}, {"egressRate": "fast"}, {"egressBurst": 5}, {"ingressRate": 1 << 64}, "much", [1]]
)
def test_a_limit_that_is_none_is_refused(given: Any) -> None:
    raw = {"cniVersion": "1.1.0", "name": "net", "runtimeConfig": {"bandwidth": given}}
    with pytest.raises(CNIError, match="it must be"):
        parse_conf(json.dumps(raw).encode(), "ADD")


def limited(bench: Bench, **limits: int) -> None:
    bench.conf = bench.make_conf(ipam={"subnet": "10.1.0.0/29"}, runtimeConfig={"bandwidth": limits})


def test_limits_are_made_checked_mended_and_removed() -> None:
    bench = Bench()
    limited(bench, ingressRate=80 * MEGABIT, egressRate=40 * MEGABIT)
    pod, key = bench.kernel.new_namespace(), AttachmentKey("c1", "eth0")
    bench.add("c1", pod)
    space = bench.kernel.namespaces[NODE]
    veth, ifb = space.links[host_ifname("net", key)], space.links[ifb_ifname("net", key)]
    assert {index: item.rate for index, item in space.buckets.items()} == {veth.index: 10_000_000, ifb.index: 5_000_000}
    assert space.redirects == {veth.index: ifb.index}
    check = replace(bench.conf, prev_result={"ips": [{"address": "10.1.0.2/29"}]})
    bench.operations.check(check, bench.args("c1"), pod)
    del space.buckets[ifb.index]
    with pytest.raises(CNIError, match="egress limit of 40000000 bit/s is not in place"):
        bench.operations.check(check, bench.args("c1"), pod)
    bench.add("c1", pod)
    bench.operations.check(check, bench.args("c1"), pod)
    bench.operations.delete(bench.conf, key)
    assert bench.kernel.dump().splitlines()[:2] == bench.empty.splitlines()[:2]
    assert (space.buckets, space.redirects, ifb_ifname("net", key) in space.links) == ({}, {}, False)


def test_a_limit_that_the_kernel_refuses_leaves_nothing() -> None:
    bench = Bench()
    limited(bench, egressRate=MEGABIT)
    bench.kernel.fail_next = ["redirect"]
    with pytest.raises(CNIError):
        bench.add("c1", bench.kernel.new_namespace())
    assert [name for name in bench.kernel.namespaces[NODE].links if name not in ("lo", "nw0")] == []
    assert bench.store.attachments() == []
