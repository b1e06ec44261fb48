"""What ADD makes, what its result says, and what CHECK finds different. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_interface, ip_network
from typing import Any

from cni.model import (
    Address,
    AttachmentKey,
    Bandwidth,
    Interface,
    LinkFacts,
    LinkPlan,
    Neighbour,
    RangeSet,
    Route,
    RouteFacts,
)
from cni.plan.bandwidth import bucket
from cni.plan.names import host_ifname, ifb_ifname
from cni.spec.configuration import NetConf
from cni.spec.errors import CHECK_FAILED, CNIError
from cni.spec.result import Result, interface_of
from nodelib.addresses import hardware_address
from nodelib.json_values import Json

DEFAULT_MTU = 1500
OF_PODS = "0a:58:"  # hardware addresses of the pod network begin with it (nodelib.addresses)


def plan(conf: NetConf, key: AttachmentKey, addresses: Sequence[Address], bridge: LinkFacts) -> LinkPlan:
    """The veth pair of one attachment. The bridge's MTU is used when the configuration has none.

    Node and pod find each other by permanent entries. The kernel's tables of neighbours are one for all network
    namespaces of a machine, and any process fills them by sending to addresses that nobody has; permanent entries do
    not count there, and do not wait for room.
    """
    gateways = dict.fromkeys(_gateway(address, conf.ranges) for address in addresses)
    return LinkPlan(
        bridge=conf.bridge,
        host_ifname=host_ifname(conf.name, key),
        ifname=key.ifname,
        mtu=conf.mtu or bridge.mtu or DEFAULT_MTU,
        addresses=tuple(_with_prefix(address, conf.ranges) for address in addresses),
        routes=_routes(conf, addresses),
        mac=hardware_address(addresses[0]) if addresses else "",
        hairpin=conf.hairpin,
        bandwidth=Bandwidth(bucket(*conf.ingress), bucket(*conf.egress)),
        ifb=ifb_ifname(conf.name, key),
        gateways=tuple(Neighbour(one, bridge.mac) for one in gateways),
        neighbours=neighbours(addresses),
    )


def neighbours(addresses: Sequence[Address]) -> tuple[Neighbour, ...]:
    """Where the node finds the pod that has these addresses."""
    return tuple(Neighbour(one, hardware_address(addresses[0])) for one in addresses)


def result(link: LinkPlan, conf: NetConf, netns: str, host: LinkFacts, bridge: LinkFacts, pod: LinkFacts) -> Result:
    """ADD's result: bridge, node's end and pod's end in this order. Entries of a prevResult come first."""
    own: list[Json] = [
        {"name": bridge.name, "mac": bridge.mac},
        {"name": host.name, "mac": host.mac, "mtu": host.mtu},
        {"name": pod.name, "mac": pod.mac, "mtu": pod.mtu, "sandbox": netns},
    ]
    previous = conf.prev_result or {}
    before = list(previous.get("interfaces") or [])
    ips = [
        {"address": str(item), "gateway": str(_gateway(item.ip, conf.ranges)), "interface": len(before) + 2}
        for item in link.addresses
    ]
    routes: list[Json] = []
    for route in link.routes:
        routes.append({"dst": str(route.destination)} | ({"gw": str(route.gateway)} if route.gateway else {}))
    return Result(
        interfaces=(*before, *own),
        ips=(*(previous.get("ips") or ()), *ips),
        routes=(*(previous.get("routes") or ()), *routes),
        dns=previous.get("dns") or {},
    )


def differences(
    link: LinkPlan,
    host: LinkFacts | None,
    bridge: LinkFacts | None,
    pod: LinkFacts | None,
    addresses: Sequence[Interface],
    routes: Sequence[RouteFacts],
) -> list[str]:
    """What is missing or differs from `link`, one sentence each."""
    found = []
    if bridge is None:
        found.append(f"the bridge {link.bridge} is missing")
    if host is None:
        found.append(f"the node's end {link.host_ifname} is missing")
    elif bridge is not None and host.master != bridge.index:
        found.append(f"{link.host_ifname} is not a port of {link.bridge}")
    elif not host.up:
        found.append(f"{link.host_ifname} is down")
    if pod is None:
        return [*found, f"the pod has no interface {link.ifname}"]
    if not pod.up:
        found.append(f"{link.ifname} is down")
    if pod.mtu != link.mtu:
        found.append(f"{link.ifname} has MTU {pod.mtu}, not {link.mtu}")
    found += [f"{link.ifname} lacks the address {item}" for item in link.addresses if item not in addresses]
    there = {(route.destination, route.gateway) for route in routes}
    found += [
        f"the pod lacks the route to {route.destination} via {route.gateway or 'the link'}"
        for route in link.routes
        if (route.destination, route.gateway) not in there
    ]
    return found


def check_prev_result(conf: NetConf, link: LinkPlan) -> None:
    """CHECK's prevResult must have the addresses that this plugin assigned. Raises CNIError(CHECK_FAILED)."""
    if conf.prev_result is None:
        raise CNIError(
            CHECK_FAILED, "CHECK came without a prevResult", details="The runtime must give the result of ADD."
        )
    given = {interface_of(item) for item in conf.prev_result.get("ips") or ()}
    missing = [str(item) for item in link.addresses if item not in given]
    if missing:
        raise CNIError(
            CHECK_FAILED,
            f"prevResult lacks {', '.join(missing)}, which this container has",
            details="Remove the pod's sandbox: a new one gets a fresh attachment.",
        )


def _routes(conf: NetConf, addresses: Sequence[Address]) -> tuple[Route, ...]:
    if not conf.routes:
        return tuple(Route(_default(address), _gateway(address, conf.ranges)) for address in addresses)
    chosen = []
    for route in conf.routes:
        same = [address for address in addresses if address.version == route.destination.version]
        if same:
            chosen.append(Route(route.destination, route.gateway or _gateway(same[0], conf.ranges)))
    return tuple(chosen)


def _default(address: Address) -> Any:
    return ip_network("0.0.0.0/0" if address.version == 4 else "::/0")


def _gateway(address: Address, ranges: Sequence[RangeSet]) -> Address:
    return next(item.gateway for chosen in ranges for item in chosen if address in item.subnet)


def _with_prefix(address: Address, ranges: Sequence[RangeSet]) -> Interface:
    subnet = next(item.subnet for chosen in ranges for item in chosen if address in item.subnet)
    return ip_interface(f"{address}/{subnet.prefixlen}")
