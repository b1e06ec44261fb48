"""The Node and its Lease against a real API server: what kubectl and the controllers see."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from agent.common.model.pods import ImageFacts
from agent.node.edge.machine import Machine, addresses_towards
from agent.node.model import MachineFacts, NodePlace, NodePolicy
from agent.node.plan.status import node_place
from agent.node.work.deps import NodeEdges, NodeHooks, NodeTimes
from agent.node.work.lease import LeaseController
from agent.node.work.node import NodeManager
from nodelib.clock import SystemClock
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.tasks import cancel_and_wait
from tests.netns import api_server
from tests.netns.api_server import ApiServer, run_inside
from tests.waiting import until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


class Runtime:
    """A runtime whose network becomes ready when the test says so."""

    def __init__(self) -> None:
        self.network_ready = False

    async def status(self) -> Json:
        network = {"type": "NetworkReady", "status": self.network_ready, "reason": "", "message": ""}
        if not self.network_ready:
            network |= {
                "reason": "NetworkPluginNotReady",
                "message": "Network plugin returns error: cni plugin not initialized",
            }
        ready = {"type": "RuntimeReady", "status": True, "reason": "", "message": ""}
        return {"status": {"conditions": [ready, network]}, "runtime_handlers": [{"name": "runc", "features": {}}]}

    async def version(self) -> Json:
        return {"runtime_name": "containerd", "runtime_version": "v2.4.2"}


class Images:
    async def list_images(self) -> tuple[ImageFacts, ...]:
        return (ImageFacts(id="i", repo_tags=("pause:3.10.1",), size=700_000),)

    async def image_fs_info(self) -> list[Json]:
        return []


class Events:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def emit(
        self,
        about: Json,
        kind: str,
        reason: str,
        message: str,
        *,
        container: str = "",
        host: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        self.reasons.append(reason)


class OtherMachine(Machine):
    def facts(self) -> MachineFacts:
        return dataclasses.replace(super().facts(), machine_id="another", system_uuid="another")


class World:
    """One agent's node part, wired as the agent wires it."""

    def __init__(self, server: ApiServer, name: str, machine: Machine | None = None) -> None:
        self.client = KubeClient(server.access(name), user_agent="test")
        self.lease_client = KubeClient(server.access(name), user_agent="test-lease", timeout=10)
        self.admin = KubeClient(server.access("admin"), user_agent="test-admin")
        self.name = name
        self.runtime, self.events = Runtime(), Events()
        self.nodes: list[list[NodePlace]] = []
        edges = NodeEdges(
            client=self.client,
            runtime=self.runtime,  # type: ignore[arg-type]
            images=Images(),  # type: ignore[arg-type]
            machine=machine or Machine("/var/lib/kubelet"),
            events=self.events,
            clock=SystemClock(),
            addresses=lambda: addresses_towards(server.server, ()),
        )
        hooks = NodeHooks(on_nodes=self.nodes.append)
        policy = NodePolicy(name=name, labels={"team": "net"}, eviction_hard={"memory.available": "100Mi"})
        self.keeper = NodeManager(edges, hooks, policy, times=NodeTimes(update=0.5, report=2))
        self.lease = LeaseController(self.lease_client, name, hooks.own_node, duration=4, clock=SystemClock())
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def pod_cidrs(self) -> tuple[str, ...]:
        return node_place(self.keeper.node).pod_cidrs if self.keeper.node is not None else ()

    async def __aenter__(self) -> World:
        work = [*self.keeper.tasks().values(), self.lease.run]
        self.tasks = [asyncio.create_task(one()) for one in work]
        return self

    async def __aexit__(self, *_: Any) -> None:
        await cancel_and_wait(*self.tasks)
        for client in (self.client, self.lease_client, self.admin):
            await client.close()

    async def node(self) -> Json:
        return await self.admin.get(f"/api/v1/nodes/{self.name}")

    async def give_pod_cidr(self, cidr: str) -> None:
        """As the controller manager does. A Node may have it already."""
        await self.admin.patch(f"/api/v1/nodes/{self.name}", {"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}})
        await until(lambda: self.pod_cidrs == (cidr,))

    async def ready(self) -> Json:
        conditions = (await self.node())["status"]["conditions"]
        return next(entry for entry in conditions if entry["type"] == "Ready")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server.running(tmp_path_factory.mktemp("api"), ["n1", "n2", "n3"]) as found:
        yield found


def test_registers_and_becomes_ready(server: ApiServer) -> None:
    async def story() -> None:
        async with World(server, "n1") as world:
            await until(world.keeper.registered.is_set)
            node = await world.node()
            assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
            assert node["metadata"]["labels"]["team"] == "net"
            assert {"type": "InternalIP", "address": server.address} in node["status"]["addresses"]
            assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.37.1"
            ready = await world.ready()
            assert (ready["status"], ready["reason"]) == ("False", "KubeletNotReady")
            await until(lambda: _says(world, "cni plugin not initialized"))
            await world.give_pod_cidr("10.244.7.0/24")
            world.runtime.network_ready = True
            await until(lambda: _says(world, "kubelet is posting ready status"))
            node = await world.node()
            assert node["status"]["nodeInfo"]["containerRuntimeVersion"] == "containerd://2.4.2"
            assert node["status"]["runtimeHandlers"][0]["name"] == "runc"
            assert "NodeReady" in world.events.reasons
            lease = await until(lambda: _lease(world))
            assert lease["spec"]["holderIdentity"] == "n1"
            assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
            assert world.lease.healthy()

    run_inside(server.netns, story)


def test_an_existing_node_is_taken_over_without_a_flip(server: ApiServer) -> None:
    async def story() -> None:
        async with World(server, "n2") as world:
            world.runtime.network_ready = True
            await until(world.keeper.registered.is_set)
            await until(lambda: _says(world, "kubelet is posting ready status"))
            await world.admin.patch(
                "/api/v1/nodes/n2", {"metadata": {"labels": {"mine": "yes"}}, "spec": {"unschedulable": True}}
            )
        world = World(server, "n2")
        world.runtime.network_ready = True
        before = await world.ready()
        async with world:
            await until(world.keeper.registered.is_set)
            await until(lambda: _heartbeat_after(world, before))
            node = await world.node()
            assert (await world.ready())["lastTransitionTime"] == before["lastTransitionTime"]
            assert node["spec"]["unschedulable"] and node["metadata"]["labels"]["mine"] == "yes"

    run_inside(server.netns, story)


def test_other_nodes_need_a_role_and_are_sent_with_it(server: ApiServer) -> None:
    async def story() -> None:
        async with World(server, "n1") as world:
            await until(world.keeper.registered.is_set)
            await world.give_pod_cidr("10.244.7.0/24")
            await world.admin.post("/api/v1/nodes", {"metadata": {"name": "n9"}})
            # Its own Node a node may always read.
            assert {fact.name for sent in world.nodes for fact in sent} <= {"n1"}
            rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]
            rbac = "/apis/rbac.authorization.k8s.io/v1"
            await world.admin.post(f"{rbac}/clusterroles", {"metadata": {"name": "see-nodes"}, "rules": rules})
            binding = {
                "metadata": {"name": "see-nodes"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "see-nodes"},
                "subjects": [{"kind": "Group", "name": "system:nodes", "apiGroup": "rbac.authorization.k8s.io"}],
            }
            await world.admin.post(f"{rbac}/clusterrolebindings", binding)
            await until(lambda: world.nodes and {"n1", "n9"} <= {fact.name for fact in world.nodes[-1]})
            fact = next(fact for fact in world.nodes[-1] if fact.name == "n1")
            assert fact.internal_ips == (server.address,) and fact.pod_cidrs == ("10.244.7.0/24",)

    run_inside(server.netns, story)


def test_a_name_that_another_live_machine_holds_is_refused(server: ApiServer) -> None:
    async def story() -> None:
        async with World(server, "n3") as first:
            await until(lambda: _lease(first))
            async with World(server, "n3", OtherMachine("/var/lib/kubelet")) as second:
                await until(lambda: "another machine" in second.keeper.last_error)
                assert not second.keeper.registered.is_set()
                assert "--hostname-override" in second.keeper.last_error

    run_inside(server.netns, story)


async def _says(world: World, text: str) -> bool:
    return text in (await world.ready())["message"]


async def _heartbeat_after(world: World, before: Json) -> bool:
    return bool((await world.ready())["lastHeartbeatTime"] > before["lastHeartbeatTime"])


async def _lease(world: World) -> Json | None:
    found = await world.admin.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
    return next((item for item in found["items"] if item["metadata"]["name"] == world.name), None)


def test_a_user_namespace_is_known_by_its_map_and_keeps_no_agent_from_starting() -> None:
    script = """
from agent.node.edge.kernel_tunables import apply_tunables
from agent.node.edge.machine import Machine, apply_limits
if Machine("/").facts().user_namespace:  # else the machine's own tunables would be set
    print(apply_limits(max_open_files=1024, oom_score_adj=-999), apply_tunables(protect=False))
"""
    for how, inside in (["-Ur"], True), (["-n"], False):
        argv = ["unshare", *how, sys.executable, "-c", script]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert (done.returncode, bool(done.stdout)) == (0, inside), done.stderr
