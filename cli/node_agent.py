"""One process a node: the agent with the pod network's CNI server inside. The agent and cni do not know each other.

Takes the kubelet's flags, and of its own: --pod-network-cidr CIDR (every pod of the cluster: traffic to it is never
translated), --pod-network-firewall iptables|nftables (as the node's service proxy has it), --pod-network-overlay
auto|vxlan|routes (how other nodes' pods are reached), --pod-network none
(another CNI plugin brings the network), --pod-network cleanup (take away all that the pod network made here, and end).
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import sys
from collections.abc import Iterable, Sequence

from agent.app import Extra, LiveSandboxes, NetworkTold
from agent.app import main as run_agent
from agent.config.parse import parse
from agent.model.node import NodePlace
from cni.app import CniNode
from cni.model import NodeFacts
from cni.settings import OVERLAYS, CniSettings
from nodelib.errors import Invalid, NodewrightError


def main(argv: Sequence[str] | None = None, *, pod_network: str = "nodewright") -> int:
    """Exit status as the agent's: 0 stopped as asked, 1 failed, 2 a bad command line or configuration.

    `pod_network`: which one when --pod-network does not say.
    """
    own, rest = _parser(pod_network).parse_known_args(sys.argv[1:] if argv is None else list(argv))
    if own.pod_network == "none" or {"-h", "--help", "--version"} & set(rest):
        return run_agent(rest)
    try:
        name = parse(rest).node.name
        settings = cni_settings(name, own.pod_network_cidr, own.pod_network_firewall, own.pod_network_overlay)
    except NodewrightError as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    if own.pod_network == "cleanup":
        return _clean_up(settings)
    return run_agent(rest, extra=Extra(network=lambda live, told: Network(settings, live, told)))


def _clean_up(settings: CniSettings) -> int:
    async def nobody() -> frozenset[str] | None:
        return None

    try:
        asyncio.run(CniNode(settings, live_sandboxes=nobody).uninstall(remove_store=True))
    except NodewrightError as error:
        print(f"agent: {error}", file=sys.stderr)
        return 1
    return 0


class Network:
    """The pod network as the agent's composition root takes it."""

    def __init__(self, settings: CniSettings, live_sandboxes: LiveSandboxes, told: NetworkTold) -> None:
        self._node = CniNode(settings, live_sandboxes=live_sandboxes, on_call=told)

    def set_nodes(self, nodes: Iterable[NodePlace]) -> None:
        """All Nodes as they are now."""
        self._node.set_nodes([translated(node) for node in nodes])

    async def run(self) -> None:
        """Until cancelled."""
        await self._node.run()


def translated(node: NodePlace) -> NodeFacts:
    """The agent's view of a Node as the pod network's."""
    return NodeFacts(
        name=node.name,
        internal_ips=tuple(ipaddress.ip_address(text) for text in node.internal_ips),
        pod_cidrs=tuple(ipaddress.ip_network(text) for text in node.pod_cidrs),
    )


def cni_settings(node_name: str, cidrs: Sequence[str], firewall: str, overlay: str = "auto") -> CniSettings:
    """Raises Invalid when a range is none."""
    try:
        ranges = tuple(ipaddress.ip_network(text) for text in cidrs)
    except ValueError as error:
        raise Invalid(str(error), obj="--pod-network-cidr", action="Give a range such as 10.244.0.0/16.") from error
    return CniSettings(node_name=node_name, cluster_cidrs=ranges, firewall=firewall, overlay=overlay)


def _parser(pod_network: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--pod-network", choices=("nodewright", "none", "cleanup"), default=pod_network)
    parser.add_argument("--pod-network-cidr", action="append", default=[])
    parser.add_argument("--pod-network-firewall", choices=("iptables", "nftables"), default="iptables")
    parser.add_argument("--pod-network-overlay", choices=OVERLAYS, default="auto")
    return parser
