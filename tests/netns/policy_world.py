"""A node with pods whose policies the real enforcer writes, beside the real proxy."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

from cni.edge.netns import in_namespace
from nodelib import command
from nodelib.addresses import hardware_address
from nodelib.clock import SystemClock
from nodelib.command import Completed
from nodelib.firewall.objects import Family
from nodelib.firewall.trace import Node, Outcome, Packet, trace
from nodelib.firewall.trace_nft import bases
from nodelib.json_values import Json
from nodelib.netlink import netfilter
from nodelib.netlink.families import BRIDGE
from nodelib.nft.edge import F, NftTable
from policy.enforcer import Enforcer
from policy.frames import Frames
from policy.plan import parse, parse_cluster
from policy.plan.layout import TABLE
from policy.plan.program import Planner
from tests.fakes.policies import Silent
from tests.netns.cni_world import Namespace
from tests.netns.proxy_world import PEER
from tests.netns.test_proxy_packets import World


class PolicyWorld(World):
    """`apply` replaces what the API has. Each call is a new daemon unless `keep` is given."""

    def table(self, family: Family) -> NftTable[Family]:
        return table_in(self.node, family)

    def enforcer(self, node: str = "node1") -> Enforcer:
        tables = {family: self.table(family) for family in Family}
        planners = {family: Planner(family, node, report=True) for family in Family}
        return Enforcer(tables, planners, SystemClock(), Silent())

    def apply(
        self,
        pods: Iterable[Json],
        policies: Iterable[Json],
        namespaces: dict[str, dict[str, str]] | None = None,
        cluster: Iterable[Json] = (),
    ) -> None:
        """A daemon that starts, writes everything once, and ends. `cluster`: ClusterNetworkPolicies and Nodes."""

        async def once() -> None:
            enforcer = self.enforcer()
            fill(enforcer, pods, policies, namespaces)
            fill_cluster(enforcer, cluster)
            enforcer.start()
            await enforcer.sync()

        asyncio.run(once())

    def give_hardware_addresses(self, *pods: str) -> None:
        """Those that our pod network gives to pods with these addresses."""
        for address in pods:
            mac = hardware_address(ip_address(address))
            self.pods[address].run("ip", "link", "set", "eth0", "address", mac)

    def frames(self) -> Frames:
        return frames_of(self.node)

    def traced(self, packet: Packet) -> tuple[Outcome, ...]:
        """What the rules that the kernel has now do with the packet."""
        ruleset = json.loads(self.node.run("nft", "-j", "list", "ruleset").stdout)
        here = Node(frozenset({"10.244.0.1", "203.0.113.1"}))
        return trace({}, packet, here, more=bases(ruleset, "ip"))

    def stream(self, who: str, to: str, port: int) -> subprocess.Popen[bytes]:
        """One TCP connection that keeps talking until its standard input ends, then prints how it went."""
        argv = (sys.executable, "-S", PEER, "stream", to, str(port))
        env = {**os.environ, "PEER_TIMEOUT": "3"}
        return self.pods[who].start(*argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)


def table_in(node: Namespace, family: F) -> NftTable[F]:
    async def run(argv: Any, **more: Any) -> Completed:
        return await command.run(node.argv(*argv), **more)

    def connect() -> socket.socket:
        with open(f"/proc/{node.pid}/ns/net") as file:
            return in_namespace(file.fileno(), netfilter.connect)

    return NftTable(family, TABLE, run=run, connect=connect)


def frames_of(node: Namespace) -> Frames:
    """Of the node's bridges; a problem fails the test."""

    def fail(problem: str) -> None:
        raise AssertionError(problem)

    return Frames(table_in(node, BRIDGE), SystemClock(), fail)


def fill(
    enforcer: Enforcer,
    pods: Iterable[Json] = (),
    policies: Iterable[Json] = (),
    namespaces: dict[str, dict[str, str]] | None = None,
) -> None:
    """What the watches would tell."""
    for name, labels in (namespaces or {"a": {}}).items():
        enforcer.set_namespace(name, labels)
    for obj in pods:
        one = parse.pod(obj)
        enforcer.set_pod(one.name, one)
    for obj in policies:
        policy, problems = parse.policy(obj)
        assert not problems, problems
        enforcer.set_policy(policy.name, policy)


def fill_cluster(enforcer: Enforcer, objects: Iterable[Json]) -> None:
    """ClusterNetworkPolicies and Nodes, as the watch would tell them."""
    for obj in objects:
        name = obj["metadata"]["name"]
        if "status" in obj:
            enforcer.set_node(name, parse_cluster.node(obj))
            continue
        policy, problems = parse_cluster.cluster_policy(obj)
        assert not problems, problems
        enforcer.set_cluster_policy(name, policy)
