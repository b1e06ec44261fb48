"""`up`: raises a cluster, or repairs whatever is missing from one. Steps run side by side where they can."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from controlplane.cluster.advice import advised, ours
from controlplane.cluster.edge import state
from controlplane.cluster.edge.roots import cache_root, state_root
from controlplane.cluster.model import CONTROL_PLANE, Cluster, Node
from controlplane.cluster.plan import (
    addons,
    addresses,
    components,
    load_balancer,
    manifests,
    snapshot_kinds,
    storage,
)
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.plan.node_files import name_servers
from controlplane.cluster.work import (
    bridge_network,
    control_plane,
    host_changes,
    host_ports,
    logins,
    network,
    node_marks,
    nodes,
    policy_api,
    user_kubeconfig,
    workloads,
)
from controlplane.cluster.work.compiled import compile_modules
from controlplane.cluster.work.node_images import import_images
from controlplane.cluster.work.workloads import DemoAnswer
from controlplane.doctor import work as doctor
from controlplane.kubeadm import work as kubeadm
from controlplane.machine.edge import cgroups, disk
from controlplane.machine.edge.locks import directory_lock
from controlplane.progress import Progress
from controlplane.up import releases
from controlplane.up.request import Request
from controlplane.up.settle import settle
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.text import counted


@dataclass(frozen=True, slots=True)
class Raised:
    """The cluster, what its demo answered, and which kubeconfig files have its entries."""

    cluster: Cluster
    answers: list[DemoAnswer]
    kubeconfigs: tuple[user_kubeconfig.Outcome, ...] = ()


async def up(request: Request, progress: Progress, clock: Clock) -> Raised:
    """Raise or repair the cluster. Raises NodewrightError with step, cause and action.

    Run again after a failure or crash at any point, it continues with what is there.
    """
    addresses.check_name(request.name)
    with progress.step("preflight") as say:
        say(await doctor.refuse_if_fatal(request.project, request.binaries_dir, request.releases.folder))
    with directory_lock(os.path.join(state_root(), request.name)):
        try:
            cluster = await asyncio.to_thread(settle, request)
        except NodewrightError:
            await asyncio.to_thread(host_changes.remove_if_empty, request.name)
            raise
        chosen = await asyncio.to_thread(
            user_kubeconfig.choose, cluster, request.kubeconfig, request.kubeconfig_variable
        )
        raising = _Raising(cluster, request, progress, clock)
        answers = await raising.run()
        await raising.flush("state on the disk")
        with progress.step("kubeconfig") as say:
            changed = await asyncio.to_thread(user_kubeconfig.merge, raising.cluster, chosen)
            say(", ".join(one.path for one in changed if not one.problem) or "left alone")
        return Raised(raising.cluster, answers, changed)


class _Raising:
    """One run of `up`, with what its steps share."""

    def __init__(self, cluster: Cluster, request: Request, progress: Progress, clock: Clock) -> None:
        self.cluster = cluster
        self.request = request
        self.progress = progress
        self.clock = clock
        self.tools = Tools({}, request.python, request.project)
        self.relinked: frozenset[str] = frozenset()
        self.rewritten: dict[str, frozenset[str]] = {}  # files of nodes whose daemons may have read another text

    async def run(self) -> list[DemoAnswer]:
        images = await self._binaries_and_images()
        if self.cluster.options.kubeadm:
            return await self._by_kubeadm(images)
        async with asyncio.TaskGroup() as group:
            keys = group.create_task(self._keys(), name="keys")
            wire = group.create_task(self._network(images), name="network")
            group.create_task(asyncio.to_thread(_import_client), name="import client")
            group.create_task(asyncio.to_thread(compile_modules, self.request.project), name="compile")
        await keys
        await wire
        await self.flush("keys and images on the disk")  # before anything is written that would be lost without them
        async with KubeClient(load_kubeconfig(self.cluster.admin_kubeconfig), user_agent="nodewright-up") as client:
            return await self._with_client(client, images)

    async def flush(self, words: str) -> None:
        """A durable cluster's files are on the disk when this returns, the programs that they need too."""
        if not self.cluster.options.durable:
            return
        with self.progress.step(words):
            for folder in (self.cluster.dir, cache_root()):
                await asyncio.to_thread(disk.flush, folder)

    async def _by_kubeadm(self, images: Mapping[str, Path]) -> list[DemoAnswer]:
        await self._network(images)
        await asyncio.to_thread(compile_modules, self.request.project)
        await kubeadm.raise_cluster(kubeadm.Context(self.cluster, self.tools, self.progress, self.clock), images)
        async with KubeClient(load_kubeconfig(self.cluster.admin_kubeconfig), user_agent="nodewright-up") as client:
            with self.progress.step("nodes Ready") as say:
                say(await workloads.wait_nodes(self.cluster, client, self.clock))
            if self.cluster.options.demo:
                await workloads.apply(client, manifests.demo_base(), self.clock)
            return await self._workloads(client)

    async def _with_client(self, client: KubeClient, images: Mapping[str, Path]) -> list[DemoAnswer]:
        ready = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._control_plane(client, ready), name="control plane")
            for node in self.cluster.nodes:
                group.create_task(self._node(node, images, ready), name=node.name)
        if self.cluster.options.agent == "upstream":
            with self.progress.step("pod network for upstream's kubelet"):
                await bridge_network.ensure_network(self.cluster, client, self.clock)
        with self.progress.step("nodes Ready") as say:
            say(await workloads.wait_nodes(self.cluster, client, self.clock))
            await workloads.label_roles(self.cluster, client)
        return await self._workloads(client)

    async def _marks_and_ports(self, client: KubeClient) -> None:
        if self.cluster.options.members:
            with self.progress.step("labels and taints") as say:
                changed = await node_marks.ensure(self.cluster, client)
                say(f"mended on {', '.join(changed)}" if changed else "all there")
        if self.cluster.options.custom.ports or host_ports.there(self.cluster):
            with self.progress.step("ports of this machine") as say:
                say(await host_ports.ensure(self.cluster, self.tools, self.clock))

    async def _binaries_and_images(self) -> Mapping[str, Path]:
        """The archives of the cluster's images. What needs no binary of theirs is made while Go compiles."""
        from controlplane.binaries.work import all_there, ensure_in_thread
        from controlplane.images.plan.known import BY_NAME, CONFORMANCE, DEMO, KUBEADM
        from controlplane.images.work import binaries_for, ensure_images, prepare_images, released_images

        images, recipes = CONFORMANCE if self._for_suites else DEMO, BY_NAME
        if self.cluster.options.kubeadm:
            images = tuple(dict.fromkeys((*images, *KUBEADM)))
        chosen = [addons.TABLE[name] for name in self.cluster.options.addon_names]
        images = tuple(dict.fromkeys((*images, *(image for addon in chosen for image in addon.images))))
        cache, given, minor = Path(cache_root()), self.request.binaries_dir, self.cluster.options.kubernetes

        async def prepare(missing: tuple[str, ...]) -> None:
            with self.progress.step("parts of images") as say:
                try:
                    await asyncio.to_thread(prepare_images, missing, cache_dir=cache, progress=say, recipes=recipes)
                except NodewrightError as error:  # tried again below, where it counts
                    say(f"not all: {error}")

        with self.progress.step("binaries and images") as say:
            prebuilt = await asyncio.to_thread(releases.choose, self.request.releases, given, say)
            released: dict[str, Path] = {}
            if given is None and not self._for_suites:  # images have the given binaries, or parts for the suites
                released = await asyncio.to_thread(released_images, images, prebuilt, recipes, cache, say)
            missing = tuple(name for name in images if name not in released)
            names = tuple(dict.fromkeys((*components.needed(self.cluster.options), *binaries_for(missing, recipes))))
            async with asyncio.TaskGroup() as group:
                if missing and not all_there(names, cache_dir=cache, binaries_dir=given, release=minor):
                    group.create_task(prepare(missing), name="parts of images")
                binaries = await ensure_in_thread(
                    names,
                    cache_dir=cache,
                    progress=say,
                    binaries_dir=given,
                    release=minor,
                    prebuilt=prebuilt,
                )
            self.tools = replace(self.tools, binaries={name: str(binaries.path(name)) for name in names})
            self.cluster = replace(self.cluster, tools=dict(self.tools.binaries))
            state.save(self.cluster)
            built = await asyncio.to_thread(
                ensure_images, missing, cache_dir=cache, binaries=binaries, progress=say, recipes=recipes
            )
            return {**released, **built}

    @property
    def _for_suites(self) -> bool:
        return self.cluster.images == "conformance"

    async def _keys(self) -> None:
        with self.progress.step("keys and certificates") as say:
            from controlplane.cluster.work import pki

            made = await asyncio.to_thread(pki.ensure, self.cluster, self.clock.now())
            say(f"{len(made)} made" if made else "all there")

    async def _network(self, images: Mapping[str, Path]) -> None:
        with self.progress.step("images on the nodes") as say:
            containerd = Path(self.tools.binaries["containerd"])
            for node in self.cluster.nodes:
                await asyncio.to_thread(nodes.seed_runtime, self.cluster, node, images, containerd, say)
        with self.progress.step("namespaces and links") as say:
            await asyncio.to_thread(self._prepare)
            self.relinked = await network.ensure_network(self.cluster, self.request.project)
            say(f"{counted(len(self.cluster.nodes), 'node')} on {self.cluster.subnet}")

    def _prepare(self) -> None:
        host_changes.record_kernel_tunables()
        cgroups.ensure(cgroups.hierarchies(), f"{self.cluster.cgroup}/{CONTROL_PLANE}")
        if any(one.username for one in self.cluster.options.custom.registries):
            logins.save(self.cluster, logins.read(self.cluster, self.request.environment))
        else:
            logins.save(self.cluster, {})
        for node in self.cluster.nodes:
            self.rewritten[node.name] = nodes.write_files(self.cluster, node)

    async def _control_plane(self, client: KubeClient, ready: asyncio.Event) -> None:
        with self.progress.step("etcd and API server"):
            await control_plane.start_storage(self.cluster, self.tools, self.clock)
            await control_plane.wait_ready(self.cluster, client, self.clock)
        ready.set()
        with self.progress.step("controllers, rights, DNS and demo objects"):
            servers = name_servers(nodes.resolv_conf(self.cluster))
            objects = manifests.rights() + manifests.dns_base(self.cluster, servers)
            if self.cluster.options.gives_addresses:
                objects += load_balancer.objects()
            if self.cluster.options.demo:
                objects += manifests.demo_base()
            if self.cluster.options.provides_volumes:
                objects += [*storage.rights(), *storage.objects(), *snapshot_kinds.kinds(), storage.snapshot_class()]
            async with asyncio.TaskGroup() as group:  # the agents are already waiting for their permissions
                group.create_task(workloads.apply(client, objects, self.clock))
                if self.cluster.options.enforces_policies:
                    group.create_task(policy_api.ensure(client, self.clock))
                group.create_task(control_plane.start_controllers(self.cluster, self.tools))

    async def _node(self, node: Node, images: Mapping[str, Path], ready: asyncio.Event) -> None:
        logs = self.cluster.log_dir(node.name)
        hint = f"Its logs are in {logs}. Run {ours(self.cluster.name, 'up')} again: it goes on where it was."
        with self.progress.step(f"{node.name}: containerd and images") as say, advised(hint):
            if nodes.RUNTIME_CONFIG in self.rewritten[node.name]:
                await nodes.restart_runtime(self.cluster, node, self.clock)
            await asyncio.to_thread(nodes.start_runtime, self.cluster, node, self.tools)
            await nodes.wait_runtime(self.cluster, node, self.clock)
            say(await import_images(self.cluster, node, self.tools, images, exactly=self._for_suites))
        with self.progress.step(f"{node.name}: agent and proxy started"):
            if node.name in self.relinked or nodes.KUBELET_CONFIG in self.rewritten[node.name]:
                nodes.restart_agent(self.cluster, node)
            await asyncio.to_thread(nodes.start_daemons, self.cluster, node, self.tools)

    async def _workloads(self, client: KubeClient) -> list[DemoAnswer]:
        await self._marks_and_ports(client)
        deployments = [] if self.cluster.options.kubeadm else [manifests.dns_deployment()]
        if self.cluster.options.demo:
            deployments.append(manifests.demo_deployment(self.cluster))
        await workloads.apply(client, deployments, self.clock)
        with self.progress.step("CoreDNS ready"):
            await workloads.wait_pods(self.cluster, client, self.clock, "kube-system", "k8s-app=kube-dns", 2)
        for name in self.cluster.options.addon_names:
            addon = addons.TABLE[name]
            with self.progress.step(f"addon {name} ready"):
                await workloads.apply(client, addon.objects(), self.clock)
                await workloads.wait_pods(self.cluster, client, self.clock, addon.namespace, addon.selector, 1)
        if not self.cluster.options.demo:
            return []
        with self.progress.step("demo answers") as say:
            answers = await workloads.query_demo(self.cluster, client, self.clock)
            say(f"by {len(answers)} ways")
            return answers


def _import_client() -> None:
    import aiohttp  # noqa: F401
