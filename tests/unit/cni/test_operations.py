"""ADD, DEL, CHECK and GC on a kernel and a store that interpret: convergence, undo, nothing lost or doubled."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cni.model import Address, Attachment, AttachmentKey
from cni.node_links import ensure_bridge
from cni.operations import Operations
from cni.plan import node
from cni.spec.arguments import Args
from cni.spec.configuration import NetConf, address_range, parse_conf
from cni.spec.errors import CNIError
from nodelib.errors import Invalid
from tests.fakes.fake_netlink import NODE, FakeKernel, FakePorts
from tests.fakes.fake_store import FakeStore


class Bench:
    def __init__(self, subnet: str = "10.1.0.0/29") -> None:
        self.kernel, self.store = FakeKernel(), FakeStore()
        self.conf = self.make_conf(ipam={"subnet": subnet})
        self.operations = Operations(
            self.kernel.open, lambda _: self.store, lambda fd, path: None, lambda: 1000.0, FakePorts()
        )
        with self.kernel.open() as links:
            ensure_bridge(links, node.bridge("nw0", [address_range({"subnet": subnet})], 1500))
        self.empty = self.kernel.dump()

    @staticmethod
    def make_conf(command: str = "ADD", **changes: Any) -> NetConf:
        return parse_conf(json.dumps({"cniVersion": "1.1.0", "name": "net"} | changes).encode(), command)

    def args(self, container: str, **more: Any) -> Args:
        return Args("ADD", container, "eth0", f"/netns/{container}", **more)

    def add(self, container: str, netns: int) -> str:
        result, _ = self.operations.add(self.conf, self.args(container), netns)
        return str(result.ips[0]["address"])


def test_add_makes_what_the_plan_says_and_del_unmakes_it() -> None:
    bench = Bench()
    pod = bench.kernel.new_namespace()
    assert bench.add("c1", pod) == "10.1.0.2/29"
    links = bench.kernel.namespaces[NODE].links, bench.kernel.namespaces[pod].links
    # Neither has to look for the other in the machine's table of neighbours.
    assert f"0 neighbour 10.1.0.2 at 0a:58:0a:01:00:02 dev {links[0]['nw0'].index}" in bench.kernel.dump()
    assert bench.kernel.dump().splitlines()[-6:] == [
        "1 link eth0 veth mtu 1500 up",
        "1 addr 10.1.0.2/29 dev eth0",
        "1 link lo - mtu 65536 up",
        f"1 neighbour 10.1.0.1 at 0a:58:0a:01:00:01 dev {links[1]['eth0'].index}",
        "1 route 0.0.0.0/0 via 10.1.0.1 proto 3",
        "1 route 10.1.0.0/29 via None proto 2",
    ]
    assert list(bench.kernel.hairpin.values()) == [True]
    bench.operations.check(
        replace(bench.conf, prev_result={"ips": [{"address": "10.1.0.2/29"}]}), bench.args("c1"), pod
    )
    released = bench.operations.delete(bench.conf, AttachmentKey("c1", "eth0"))
    assert released is not None
    bench.kernel.drop(pod)
    assert bench.kernel.dump() == bench.empty
    assert bench.operations.delete(bench.conf, AttachmentKey("c1", "eth0")) is None


@pytest.mark.parametrize("step", ["add_veth", "set_up_pod", "replace_neighbour"])
def test_a_step_that_fails_leaves_nothing(step: str) -> None:
    bench = Bench()
    pod = bench.kernel.new_namespace()
    bench.kernel.fail_next = [step]
    with pytest.raises(CNIError) as caught:
        bench.add("c1", pod)
    assert caught.value.code == 100
    assert "c1/eth0" in str(caught.value)
    bench.kernel.drop(pod)  # its loopback may be up
    assert (bench.kernel.dump(), bench.store.records) == (bench.empty, {})
    assert bench.add("c1", bench.kernel.new_namespace()) == "10.1.0.3/29"


def test_repeated_add_changes_nothing() -> None:
    bench = Bench()
    pod = bench.kernel.new_namespace()
    first = bench.operations.add(bench.conf, bench.args("c1"), pod)
    before, calls = bench.kernel.dump(), len(bench.kernel.calls)
    assert bench.operations.add(bench.conf, bench.args("c1"), pod)[0] == first[0]
    assert (bench.kernel.dump(), len(bench.kernel.calls)) == (before, calls)


def test_rest_of_a_killed_add_is_replaced() -> None:
    bench = Bench()
    pod = bench.kernel.new_namespace()
    bench.add("c1", pod)
    bench.store.records.clear()
    assert bench.add("c1", pod) == "10.1.0.3/29"


def test_an_address_that_another_process_takes_meanwhile() -> None:
    bench = Bench()
    thief = Attachment(AttachmentKey("thief", "eth0"), (ip_address("10.1.0.2"),))
    bench.store.stolen[ip_address("10.1.0.2")] = thief
    assert bench.add("c1", bench.kernel.new_namespace()) == "10.1.0.3/29"
    assert len(bench.store.records) == 2


def test_changed_pod_cidr_gives_a_new_address_on_the_next_add() -> None:
    bench = Bench()
    pod = bench.kernel.new_namespace()
    bench.add("c1", pod)
    bench.conf = bench.make_conf(ipam={"subnet": "10.2.0.0/29"})
    with bench.kernel.open() as links:
        ensure_bridge(links, node.bridge("nw0", [address_range({"subnet": "10.2.0.0/29"})], 1500))
    with pytest.raises(CNIError, match="podCIDR has changed"):
        bench.operations.check(bench.conf, bench.args("c1"), pod)
    assert bench.add("c1", pod) == "10.2.0.2/29"
    assert [str(address) for address in bench.store.records] == ["10.2.0.2"]


def test_dual_stack_takes_one_of_each_and_both_go() -> None:
    bench = Bench()
    bench.conf = bench.make_conf(ipam={"ranges": [[{"subnet": "10.1.0.0/29"}], [{"subnet": "fd00::/64"}]]})
    pod = bench.kernel.new_namespace()
    result, _ = bench.operations.add(bench.conf, bench.args("c1"), pod)
    assert [item["address"] for item in result.ips] == ["10.1.0.2/29", "fd00::2/64"]
    assert [item["dst"] for item in result.routes] == ["0.0.0.0/0", "::/0"]
    bench.operations.delete(bench.conf, AttachmentKey("c1", "eth0"))
    assert bench.store.records == {}


def test_no_bridge_is_try_again_and_a_wrong_one_is_named() -> None:
    bench = Bench()
    with bench.kernel.open() as links:
        links.delete_link("nw0")
    with pytest.raises(CNIError, match="nw0 does not exist") as caught:
        bench.add("c1", bench.kernel.new_namespace())
    assert caught.value.code == 11
    space = bench.kernel.namespaces[NODE]
    space.links["nw0"] = replace(space.links["lo"], name="nw0", kind="vxlan")
    with pytest.raises(CNIError, match="nw0 is a vxlan") as caught:
        bench.add("c1", bench.kernel.new_namespace())
    assert caught.value.code == 7
    with bench.kernel.open() as links, pytest.raises(Invalid, match="vxlan"):
        ensure_bridge(links, node.bridge("nw0", [address_range({"subnet": "10.1.0.0/29"})], 1500))
    assert bench.store.records == {}


def test_gc_goes_on_after_a_failure() -> None:
    bench = Bench("10.1.0.0/24")
    for name in ("a", "b", "c"):
        bench.add(name, bench.kernel.new_namespace())
    bench.kernel.fail_next = ["delete_link"]
    with pytest.raises(CNIError, match="1 attachments remain"):
        bench.operations.collect(bench.conf, frozenset({AttachmentKey("b", "eth0")}))
    assert {item.key.container_id for item in bench.store.attachments()} == {"a", "b"}
    assert len(bench.operations.collect(bench.conf, frozenset({AttachmentKey("b", "eth0")}))) == 1


MOVES = st.lists(st.tuples(st.sampled_from(["add", "del", "drop", "fail"]), st.integers(0, 6)), min_size=1, max_size=40)


@settings(max_examples=150, deadline=None)
@given(MOVES)
def test_whatever_happens_addresses_and_links_agree(moves: list[tuple[str, int]]) -> None:
    """Any order of ADD, DEL, vanished namespaces and failing steps; a DEL of everything gives everything back."""
    bench = Bench()
    pods: dict[str, int] = {}
    for move, number in moves:
        name = f"c{number}"
        if move == "add":
            netns = pods.setdefault(name, bench.kernel.new_namespace())
            try:
                bench.add(name, netns)
            except CNIError as error:
                assert error.code in (100, 101)
        elif move == "del":
            bench.kernel.fail_next = []
            bench.operations.delete(bench.conf, AttachmentKey(name, "eth0"))
        elif move == "drop" and name in pods:
            bench.kernel.drop(pods.pop(name))
        elif move == "fail":
            bench.kernel.fail_next = [("add_veth", "set_up_pod")[number % 2]]
        given_out = [address for item in bench.store.attachments() for address in item.addresses]
        assert len(set(given_out)) == len(given_out) == len(bench.store.records)
        held = {item.key.container_id for item in bench.store.attachments()}
        linked = {name for name, netns in pods.items() if "eth0" in bench.kernel.namespaces[netns].links}
        assert linked <= held
    bench.kernel.fail_next = []
    for number in range(7):
        bench.operations.delete(bench.conf, AttachmentKey(f"c{number}", "eth0"))
    for netns in pods.values():
        bench.kernel.drop(netns)
    assert (bench.kernel.dump(), bench.store.records) == (bench.empty, {})


def test_networks_are_values() -> None:
    assert ip_network("10.1.0.0/29") == Bench().conf.ranges[0][0].subnet


def test_of_two_addresses_the_first_is_free_again_when_there_is_no_room_for_the_second() -> None:
    bench = Bench()
    bench.conf = bench.make_conf(ipam={"ranges": [[{"subnet": "10.1.0.0/29"}], [{"subnet": "fd00::/120"}]]})
    claim = bench.store.claim

    def full(address: Address, attachment: Attachment) -> bool:
        if address.version == 6:
            raise CNIError(5, "No space left on device")
        return claim(address, attachment)

    bench.store.claim = full  # type: ignore[method-assign]
    with pytest.raises(CNIError, match="No space left"):
        bench.add("c1", bench.kernel.new_namespace())
    assert bench.store.records == {}
