"""The node's half on a kernel that interprets: what it serves, when it waits, what it mends, what it leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

import pytest

from cni.daemon import NodeNetwork, Published
from cni.firewall import Firewall
from cni.model import (
    Address,
    Attachment,
    AttachmentKey,
    FirewallFacts,
    HostPort,
    LinkFacts,
    LinkPlan,
    Neighbour,
    Network,
    NodeFacts,
    PortMapping,
    RouteFacts,
)
from cni.node_links import NodeLinks
from cni.plan.names import host_ifname
from cni.settings import CniSettings
from cni.spec.configuration import NetConf, address_range
from cni.spec.errors import UNKNOWN_CONTAINER, CNIError
from nodelib.errors import Invalid, NodewrightError, Permanent
from tests.fakes.clock import FakeClock
from tests.fakes.fake_netlink import NODE, FakeKernel, FakeLinks

CIDR, OTHER = ip_network("10.244.0.0/24"), ip_network("10.244.1.0/24")
ME = NodeFacts("me", (ip_address("10.89.0.11"),), (CIDR,))
PEER = NodeFacts("peer", (ip_address("10.89.0.12"),), (OTHER,))


class Sysctl:
    def __init__(self) -> None:
        self.values = {"net/ipv4/ip_forward": "0", "net/ipv4/conf/nw0/route_localnet": "0"}
        self.values["net/bridge/bridge-nf-call-iptables"] = "0"
        self.read_only = False

    def read(self, name: str) -> str | None:
        return self.values.get(name)

    def write(self, name: str, value: str) -> None:
        if self.read_only:
            raise Permanent("Read-only file system", obj=name, action="Set it from outside.")
        self.values[name] = value


class Bench:
    def __init__(self, **more: Any) -> None:
        self.kernel, self.sysctl, self.clock = FakeKernel(), Sysctl(), FakeClock()
        self.rules: list[FirewallFacts] = []
        self.published: list[tuple[Network, ...]] = []
        self.attachments: list[Attachment] = []
        self.fail_rules = 0
        self.order: list[str] = []
        self.paths: dict[Address, int] = {}
        settings = CniSettings("me", cluster_cidrs=(ip_network("10.244.0.0/16"),))
        links = NodeLinks(settings, self.kernel.open, self.sysctl, lambda *_: self.paths, self._enter)
        self.network = NodeNetwork(
            settings,
            links=links,
            attachments=lambda: self.attachments,
            apply_rules=self._apply,
            publish=self._published,
            clock=self.clock,
            **more,
        )
        space = self.kernel.namespaces[NODE]
        space.links["eth0"] = replace(space.links["lo"], name="eth0", index=9, mtu=1450, up=True)
        space.addresses.append((9, ip_interface("10.89.0.11/24")))

    @contextmanager
    def _enter(self, path: str) -> Iterator[int]:
        number = int(path.rpartition("/")[2])
        if number not in self.kernel.namespaces:
            raise CNIError(UNKNOWN_CONTAINER, f"cannot open {path}")
        yield number

    async def _apply(self, facts: tuple[FirewallFacts, ...], everything: bool) -> None:
        if self.fail_rules:
            self.fail_rules -= 1
            raise NodewrightError("made to fail")
        assert self.sysctl.values["net/ipv4/conf/nw0/route_localnet"] == "0" or self.rules, "unguarded"
        self.rules += facts

    async def _published(self, cidrs: tuple[Network, ...], outside: tuple[Network, ...]) -> None:
        self.published.append(cidrs)

    def routes(self) -> list[str]:
        """To other nodes."""
        found = self.kernel.namespaces[NODE].routes
        return [f"{item.destination} {item.gateway}" for item in found if item.gateway is not None]


async def test_everything_is_set_up_before_the_conflist_is_published() -> None:
    bench = Bench()
    bench.network.set_nodes([ME, PEER])
    assert "set up yet" in bench.network.waiting
    await bench.network.sync()
    assert bench.network.waiting == ""
    bridge = bench.kernel.namespaces[NODE].links["nw0"]
    assert (bridge.kind, bridge.mtu, bridge.mac) == ("bridge", 1450, "0a:58:0a:f4:00:01")
    assert bench.routes() == ["10.244.1.0/24 10.89.0.12"]
    assert set(bench.sysctl.values.values()) == {"1"}
    assert bench.rules[-1].bridge_filtered
    assert bench.published == [(CIDR,)]
    assert bench.rules[-1].non_masquerade == tuple(map(ip_network, ("10.244.0.0/16", "10.89.0.11/32", "10.89.0.12/32")))


async def test_status_is_not_answered_before_the_first_look() -> None:
    """A restarted agent whose network stands must not say NotReady only because it has not looked yet."""
    bench = Bench(published=Published((CIDR,), ()))
    asked = asyncio.ensure_future(bench.network.status())
    await asyncio.sleep(0)
    assert not asked.done()
    await bench.network.sync()
    assert await asyncio.wait_for(asked, 10) == ""


@pytest.mark.parametrize(("published", "patience"), [(Published((CIDR,), ()), 30), (Published(), 5)])
async def test_status_waits_longer_for_a_network_that_an_earlier_agent_has_set_up(
    published: Published, patience: float
) -> None:
    """On a busy machine the first look takes seconds, and pods of a node that says NotReady lose their readiness."""
    bench = Bench(published=published)
    asked = asyncio.ensure_future(bench.network.status())
    await bench.clock.advance(patience - 0.5)
    assert not asked.done()
    await bench.clock.advance(1)
    assert "set up yet" in await asyncio.wait_for(asked, 2)


async def test_status_tells_what_the_first_look_failed_with() -> None:
    bench = Bench(published=Published((CIDR,), ()))
    bench.fail_rules = 1
    asked = asyncio.ensure_future(bench.network.status())
    with pytest.raises(NodewrightError):
        await bench.network.sync()
    assert await asyncio.wait_for(asked, 10) == "made to fail"


async def test_no_pod_cidr_means_wait() -> None:
    bench = Bench()
    bench.network.set_nodes([replace(ME, pod_cidrs=())])
    await bench.network.sync()
    assert bench.network.waiting == "node me has no podCIDR yet"
    assert (bench.published, bench.rules, "nw0" in bench.kernel.namespaces[NODE].links) == ([], [], False)


async def test_before_nodes_are_known_the_last_run_counts_and_routes_stay() -> None:
    bench = Bench(published=Published((CIDR,), (ip_network("10.89.0.12/32"),)))
    left = RouteFacts(OTHER, ip_address("10.89.0.12"), 9, 143)
    bench.kernel.namespaces[NODE].routes.append(left)
    await bench.network.sync()
    assert (bench.network.waiting, bench.published) == ("", [(CIDR,)])
    assert left in bench.kernel.namespaces[NODE].routes
    assert ip_network("10.89.0.12/32") in bench.rules[-1].non_masquerade
    bench.network.set_nodes([ME])
    await bench.network.sync()
    assert bench.routes() == []


async def test_a_node_made_anew_waits_but_its_pods_keep_their_rules() -> None:
    bench = Bench()
    bench.network.set_nodes([ME])
    await bench.network.sync()
    bench.network.set_nodes([replace(ME, pod_cidrs=())])
    await bench.network.sync()
    assert "no podCIDR" in bench.network.waiting
    await bench.network.firewall.sync(audit=True)
    assert bench.rules[-1].pod_cidrs == (CIDR,)


async def test_one_failing_audit_is_no_outage_but_many_are() -> None:
    bench = Bench()
    bench.network.set_nodes([ME])
    await bench.network.sync()
    bench.fail_rules = 5
    for _ in range(4):
        with pytest.raises(NodewrightError):
            await bench.network.sync()
        assert bench.network.waiting == ""
    with pytest.raises(NodewrightError):
        await bench.network.sync()
    assert bench.network.waiting == "made to fail"
    await bench.network.sync()
    assert bench.network.waiting == ""


async def test_a_read_only_kernel_setting_is_explained() -> None:
    bench = Bench()
    bench.sysctl.read_only = True
    bench.network.set_nodes([ME])
    with pytest.raises(Permanent, match=r"ip_forward.*Set it from outside"):
        await bench.network.sync()
    assert "Set it from outside" in bench.network.waiting


async def test_what_somebody_removed_comes_back() -> None:
    bench = Bench()
    bench.network.set_nodes([ME, PEER])
    await bench.network.sync()
    with bench.kernel.open() as links:
        links.delete_link("nw0")
    bench.kernel.namespaces[NODE].routes.clear()
    await bench.network.sync()
    assert "nw0" in bench.kernel.namespaces[NODE].links
    assert bench.routes() == ["10.244.1.0/24 10.89.0.12"]


async def test_the_nodes_range_counts_not_the_runtimes_file(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    theirs = NetConf("1.1.0", "nodewright", ranges=((address_range({"subnet": "10.244.9.0/24"}),),))
    assert bench.network.adopt(theirs) == theirs
    bench.network.set_nodes([ME])
    assert [item.subnet for chosen in bench.network.adopt(theirs).ranges for item in chosen] == [CIDR]
    bench.network.adopt(theirs)
    assert caplog.text.count("says 10.244.9.0/24, this node has 10.244.0.0/24") == 1
    foreign = replace(theirs, name="podman")
    assert bench.network.adopt(foreign) is foreign


async def test_callers_share_one_write() -> None:
    facts = FirewallFacts("nodewright", "nw0", (CIDR,))
    current = [facts]
    writes: list[tuple[FirewallFacts, ...]] = []
    ports: list[tuple[HostPort, ...]] = []

    async def apply(value: tuple[FirewallFacts, ...], everything: bool) -> None:
        await asyncio.sleep(0)
        writes.append(value)

    async def changed(old: tuple[HostPort, ...], new: tuple[HostPort, ...]) -> None:
        ports.append(new)

    firewall = Firewall(lambda: (current[0],), apply, changed)

    async def add(number: int) -> None:
        mapping = HostPort(PortMapping(number, 80), ip_address("10.244.0.5"))
        current[0] = replace(current[0], host_ports=(*current[0].host_ports, mapping))
        await firewall.sync()
        assert mapping in writes[-1][0].host_ports

    await asyncio.gather(*(add(number) for number in range(1, 201)))
    assert len(writes) <= 3
    await firewall.sync()
    assert len(writes) <= 3
    await firewall.sync(audit=True)
    assert len(writes) <= 4


async def test_flows_that_could_not_be_forgotten_are_forgotten_by_the_next_write() -> None:
    mapping = HostPort(PortMapping(53, 53), ip_address("10.244.0.5"))
    facts = [FirewallFacts("nodewright", "nw0", (CIDR,), host_ports=(mapping,))]
    seen: list[tuple[tuple[HostPort, ...], tuple[HostPort, ...]]] = []

    async def apply(value: tuple[FirewallFacts, ...], everything: bool) -> None:
        pass

    async def changed(old: tuple[HostPort, ...], new: tuple[HostPort, ...]) -> None:
        seen.append((old, new))
        if len(seen) == 2:
            raise OSError("no buffer space available")

    firewall = Firewall(lambda: (facts[0],), apply, changed)
    await firewall.sync()
    facts[0] = replace(facts[0], host_ports=())
    with pytest.raises(OSError, match="buffer"):
        await firewall.sync()
    await firewall.sync()
    assert seen == [((), (mapping,)), ((mapping,), ()), ((mapping,), ())]


async def test_a_failed_write_is_made_again() -> None:
    bench = Bench()
    bench.network.set_nodes([ME])
    bench.fail_rules = 1
    with pytest.raises(NodewrightError):
        await bench.network.firewall.sync()
    await bench.network.firewall.sync()
    assert len(bench.rules) == 1


FAR = NodeFacts("far", (ip_address("198.51.100.1"),), (ip_network("10.244.7.0/24"),))


async def test_a_node_off_the_link_is_reached_by_vxlan_and_all_of_it_goes_with_it() -> None:
    bench = Bench()
    bench.network.set_nodes([ME, PEER, FAR])
    await bench.network.sync()
    space = bench.kernel.namespaces[NODE]
    assert sorted(bench.routes()) == ["10.244.1.0/24 10.89.0.12", "10.244.7.0/24 10.244.7.1"]
    tunnel = space.links["nwvx0"]
    assert (tunnel.kind, tunnel.mac, tunnel.mtu, space.links["nw0"].mtu) == ("vxlan", "0a:58:0a:59:00:0b", 1400, 1400)
    assert [(item.mac, str(item.remote)) for _, item in space.forwards] == [("0a:58:c6:33:64:01", "198.51.100.1")]
    assert [(str(item.address), item.mac) for _, item in space.neighbours] == [("10.244.7.1", "0a:58:c6:33:64:01")]
    assert (tunnel.index, ip_interface("10.244.0.1/32")) in space.addresses
    before = len(bench.kernel.calls)
    await bench.network.sync()
    assert bench.kernel.calls[before:] == []
    bench.network.set_nodes([ME, PEER])
    await bench.network.sync()
    assert bench.routes() == ["10.244.1.0/24 10.89.0.12"]
    assert ("nwvx0" in space.links, space.forwards, space.links["nw0"].mtu) == (False, [], 1450)


async def test_a_node_that_moves_is_followed() -> None:
    bench = Bench()
    bench.network.set_nodes([ME, FAR])
    await bench.network.sync()
    bench.network.set_nodes([ME, replace(FAR, internal_ips=(ip_address("198.51.100.2"),))])
    await bench.network.sync()
    space = bench.kernel.namespaces[NODE]
    assert [(item.mac, str(item.remote)) for _, item in space.forwards] == [("0a:58:c6:33:64:02", "198.51.100.2")]
    assert [item.mac for _, item in space.neighbours] == ["0a:58:c6:33:64:02"]


async def test_running_pods_follow_a_smaller_path() -> None:
    bench = Bench()
    bench.network.set_nodes([ME, FAR])
    await bench.network.sync()
    pod = bench.kernel.new_namespace()
    key = AttachmentKey("c1", "eth0")
    with bench.kernel.open() as node, bench.kernel.open(pod) as inside:
        plan = LinkPlan("nw0", host_ifname("nodewright", key), "eth0", 1400, (ip_interface("10.244.0.5/24"),), ())
        node.add_veth(plan, bench.kernel.namespaces[NODE].links["nw0"], pod)
        inside.set_up_pod(plan)
    gone = Attachment(AttachmentKey("c2", "eth0"), (ip_address("10.244.0.6"),), netns="/run/netns/99")
    bench.attachments = [Attachment(key, (ip_address("10.244.0.5"),), netns=f"/run/netns/{pod}"), gone]
    bench.paths[FAR.internal_ips[0]] = 1300
    await bench.network.sync()
    assert bench.kernel.namespaces[pod].links["eth0"].mtu == 1250
    assert bench.kernel.namespaces[NODE].links[plan.host_ifname].mtu == 1250


async def test_the_node_finds_its_pods_and_nobody_who_is_gone() -> None:
    bench = Bench()
    bench.network.set_nodes([ME])
    await bench.network.sync()
    here, there = ip_address("10.244.0.5"), ip_address("fd00::5")
    space = bench.kernel.namespaces[NODE]
    index = space.links["nw0"].index
    others = Neighbour(ip_address("10.244.0.7"), "aa:bb:cc:00:00:01")  # whoever made it
    space.neighbours = [(index, Neighbour(ip_address("10.244.0.6"), "0a:58:0a:f4:00:06")), (index, others)]
    bench.attachments = [Attachment(AttachmentKey("c1", "eth0"), (here, there))]
    await bench.network.sync()
    mac = "0a:58:0a:f4:00:05"
    assert {one for _, one in space.neighbours} == {Neighbour(here, mac), Neighbour(there, mac), others}


async def test_pods_follow_when_the_bridge_gets_another_hardware_address() -> None:
    bench = Bench()
    bench.network.set_nodes([ME])
    await bench.network.sync()
    pod, key, gateway = bench.kernel.new_namespace(), AttachmentKey("c1", "eth0"), ip_address("10.244.0.1")
    bridge = bench.kernel.namespaces[NODE].links["nw0"]
    with bench.kernel.open() as node, bench.kernel.open(pod) as inside:
        ends = host_ifname("nodewright", key), "eth0"
        entries = (Neighbour(gateway, bridge.mac),)
        plan = LinkPlan("nw0", *ends, 1450, (ip_interface("10.244.0.5/24"),), (), gateways=entries)
        node.add_veth(plan, bridge, pod)
        inside.set_up_pod(plan)
    bench.attachments = [Attachment(key, (ip_address("10.244.0.5"),), netns=f"/run/netns/{pod}")]
    bench.network.set_nodes([replace(ME, pod_cidrs=(OTHER,))])
    await bench.network.sync()
    assert [one for _, one in bench.kernel.namespaces[pod].neighbours] == [Neighbour(gateway, "0a:58:0a:f4:01:01")]


async def test_before_nodes_are_known_an_overlay_stays_with_its_mtu() -> None:
    first = Bench()
    first.network.set_nodes([ME, FAR])
    await first.network.sync()
    again = Bench(published=Published((CIDR,), ()))
    again.kernel.namespaces = first.kernel.namespaces
    await again.network.sync()
    space = again.kernel.namespaces[NODE]
    assert (space.links["nw0"].mtu, "nwvx0" in space.links) == (1400, True)
    assert again.routes() == ["10.244.7.0/24 10.244.7.1"]


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "10.89.0.0/24", "10.0.0.0/8", "127.0.0.0/8"])
async def test_a_pod_cidr_that_takes_the_node_off_its_network_makes_no_bridge(cidr: str) -> None:
    bench = Bench()
    bench.network.set_nodes([replace(ME, pod_cidrs=(ip_network(cidr),))])
    with pytest.raises(Invalid):
        await bench.network.sync()
    assert f"podCIDR {cidr}" in bench.network.waiting
    assert "nw0" not in bench.kernel.namespaces[NODE].links


async def test_router_advertisements_of_pods_are_never_accepted() -> None:
    """CVE-2020-10749: the switch to forwarding keeps those of the uplink, but not those that come from a pod."""
    bench = Bench()
    six = ip_network("fd00:10:244::/64")
    bench.network.set_nodes([replace(ME, pod_cidrs=(CIDR, six))])
    await bench.network.sync()
    bench.sysctl.values |= {"net/ipv6/conf/all/forwarding": "0", "net/ipv6/conf/nw0/accept_ra": "1"}
    bench.sysctl.values |= {"net/ipv6/conf/eth0/accept_ra": "1", "net/ipv6/conf/nw0/accept_redirects": "1"}
    bench.sysctl.values |= {"net/ipv4/conf/nw0/accept_redirects": "1", "net/ipv4/conf/nw0/rp_filter": "0"}
    await bench.network.sync()
    assert bench.sysctl.values["net/ipv6/conf/eth0/accept_ra"] == "2"
    assert bench.sysctl.values["net/ipv6/conf/nw0/accept_ra"] == "0"
    assert bench.sysctl.values["net/ipv6/conf/nw0/accept_redirects"] == "0"
    assert bench.sysctl.values["net/ipv4/conf/nw0/accept_redirects"] == "0"
    assert bench.sysctl.values["net/ipv4/conf/nw0/rp_filter"] == "1"


async def test_ipv6_pods_have_forwarding_rules_and_router_advertisements_still() -> None:
    bench = Bench()
    bench.sysctl.values |= {"net/ipv6/conf/all/forwarding": "0", "net/ipv6/conf/eth0/accept_ra": "1"}
    six = ip_network("fd00:10:244::/64")
    bench.network.set_nodes([replace(ME, pod_cidrs=(CIDR, six))])
    await bench.network.sync()
    assert bench.sysctl.values["net/ipv6/conf/all/forwarding"] == "1"
    assert bench.sysctl.values["net/ipv6/conf/eth0/accept_ra"] == "2"
    assert [(item.version, item.pod_cidrs) for item in bench.rules] == [
        (4, (CIDR,)),
        (6, (ip_network("fd00:10:244::/64"),)),
    ]


async def test_a_kernel_without_bridge_filtering_is_explained_and_served(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    del bench.sysctl.values["net/bridge/bridge-nf-call-iptables"]
    bench.network.set_nodes([ME])
    await bench.network.sync()
    await bench.network.sync()
    assert bench.network.waiting == ""
    assert caplog.text.count("modprobe br_netfilter") == 1
    assert not bench.rules[-1].bridge_filtered


async def test_a_sync_asks_for_all_links_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred pods are a hundred links, and it is their reading that costs."""
    bench, asked, links = Bench(), [0], FakeLinks.links

    def counted(self: FakeLinks) -> list[LinkFacts]:
        asked[0] += 1
        return links(self)

    monkeypatch.setattr(FakeLinks, "links", counted)
    await bench.network.sync()
    bench.network.set_nodes([ME])
    await bench.network.sync()
    assert asked == [1]  # the first had no podCIDR to work for
