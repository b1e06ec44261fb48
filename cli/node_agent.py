"""The process of a node: the agent with the pod network's CNI server inside. agent and cni do not import each other.

It takes the kubelet's flags and these:
--pod-network nodewright|none|cleanup: none when another CNI plugin provides the network; cleanup removes everything
  that the pod network created on this node, and exits
--pod-network-cidr CIDR: a range of the cluster's pods; traffic to it is never masqueraded (may be repeated)
--pod-network-firewall iptables|nftables: which one the node's service proxy uses
--pod-network-overlay auto|vxlan|routes: how pods on other nodes are reached
--pod-network-connections shared|unbounded: whether pods are kept from filling the node's table of connections
--network-policy-socket PATH: of the policy daemon; no pod starts before it has put the pod's policies in force
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.app import Extra, LiveSandboxes, OnLimited, OnNetworkCall, SpanOf
from agent.app import main as run_agent
from agent.config.parse import parse
from agent.node.model import NodePlace
from cni.app import CniNode
from cni.model import NodeFacts
from cni.settings import OVERLAYS, CniSettings
from nodelib import addresses
from nodelib.errors import Invalid, NodewrightError

_MOST_ADDRESSES = 16  # of one Node


def main(argv: Sequence[str] | None = None, *, pod_network: str = "nodewright") -> int:
    """Exit status: 0 stopped on request, 1 failed, 2 a bad command line or configuration.

    `pod_network`: the default of --pod-network.
    """
    own, rest = _parser(pod_network).parse_known_args(sys.argv[1:] if argv is None else list(argv))
    if own.pod_network == "none" or {"-h", "--help", "--version"} & set(rest):
        return run_agent(rest)
    try:
        name = parse(rest).node.name
        settings = replace(
            cni_settings(name, own.pod_network_cidr, own.pod_network_firewall, own.pod_network_overlay),
            policy_socket=own.network_policy_socket,
            share_connections=own.pod_network_connections == "shared",
        )
    except NodewrightError as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    if own.pod_network == "cleanup":
        return _clean_up(settings)
    return run_agent(rest, extra=Extra(network=lambda *agents: Network(settings, *agents)))


def _clean_up(settings: CniSettings) -> int:
    async def not_known() -> frozenset[str] | None:
        return None

    try:
        asyncio.run(CniNode(settings, live_sandboxes=not_known).uninstall(remove_store=True))
    except NodewrightError as error:
        print(f"agent: {error}", file=sys.stderr)
        return 1
    return 0


class Network:
    """Adapts the CNI server to agent.app.PodNetwork."""

    def __init__(
        self,
        settings: CniSettings,
        live_sandboxes: LiveSandboxes,
        report: OnNetworkCall,
        span_of: SpanOf,
        limited: OnLimited,
    ) -> None:
        self._node = CniNode(
            settings,
            live_sandboxes=live_sandboxes,
            on_call=report,
            span_of=span_of,
            on_crowding=lambda now: limited(now.limited, now.deleted, now.refused),
        )
        self._translated = Translated()

    def set_nodes(self, nodes: Iterable[NodePlace]) -> None:
        """Replace what is known of the cluster's Nodes."""
        self._node.set_nodes(self._translated.all(nodes))

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._node.run()


class Translated:
    """All Nodes, as the pod network needs them. Those that have not changed are not read again: there may be thousands,
    and each of them changes when it likes.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[NodePlace, NodeFacts]] = {}

    def all(self, nodes: Iterable[NodePlace]) -> list[NodeFacts]:
        known, self._known = self._known, {}
        for node in nodes:
            old = known.get(node.name)
            self._known[node.name] = old if old is not None and old[0] == node else (node, translated(node))
        return [facts for _, facts in self._known.values()]


def translated(node: NodePlace) -> NodeFacts:
    """Convert the agent's view of a Node to the pod network's.

    Each node writes its own addresses, and the API server does not check them: what is no address, or none that a node
    can have, is left out, and so is what comes after the first sixteen. The other nodes are served all the same.
    """
    ips = [ip for ip in map(_address, node.internal_ips) if ip is not None and not addresses.special(ip)]
    cidrs = [cidr for cidr in map(_network, node.pod_cidrs) if cidr is not None]
    return NodeFacts(node.name, tuple(ips[:_MOST_ADDRESSES]), tuple(cidrs), node.created)


def _address(text: object) -> addresses.Address | None:
    try:
        return addresses.parse_address(text)
    except ValueError:
        return None


def _network(text: object) -> addresses.Network | None:
    try:
        return addresses.parse_network(text)
    except ValueError:
        return None


def cni_settings(node_name: str, cidrs: Sequence[str], firewall: str, overlay: str = "auto") -> CniSettings:
    """Settings of the CNI server. Raises Invalid for a text that is not an address range."""
    try:
        ranges = tuple(addresses.parse_network(text) for text in cidrs)
    except ValueError as error:
        raise Invalid(str(error), obj="--pod-network-cidr", action="Give a range such as 10.244.0.0/16.") from error
    return CniSettings(node_name=node_name, cluster_cidrs=ranges, firewall=firewall, overlay=overlay)


def _parser(pod_network: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--pod-network", choices=("nodewright", "none", "cleanup"), default=pod_network)
    parser.add_argument("--pod-network-cidr", action="append", default=[])
    parser.add_argument("--pod-network-firewall", choices=("iptables", "nftables"), default="iptables")
    parser.add_argument("--pod-network-overlay", choices=OVERLAYS, default="auto")
    parser.add_argument("--pod-network-connections", choices=("shared", "unbounded"), default="shared")
    parser.add_argument("--network-policy-socket", default="")
    return parser
