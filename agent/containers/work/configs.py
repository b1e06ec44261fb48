"""ContainerConfigs: the CRI configurations of sandboxes and containers.

It collects what the pure functions of containers/plan need (DNS, environment, mounts, cgroup limits), writes the few
files that a container is given, and puts the results together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agent.common.model.pod_settings import NodeContext, PodDefaults
from agent.common.model.pods import Pod
from agent.common.plan import names
from agent.common.work.pod_errors import refuse_malformed, run_blocking
from agent.common.work.pod_warnings import PodWarnings
from agent.containers.model import ContainerInputs, PreparedPod
from agent.containers.plan import container as container_plan
from agent.containers.plan import dns, mounts, sandbox, security
from agent.containers.ports import ConfigObjects, ContainerDisk
from agent.containers.work.environment import EnvironmentReader
from agent.containers.work.mounts import MountMaker
from agent.resources.plan import cgroups, container_limits
from agent.userns.work import UserNamespaces
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.threads import in_thread_if


@dataclass(frozen=True, slots=True)
class CgroupFacts:
    """What decides the limits in a configuration. `unthrottled(pod)`: the pod has exclusive CPUs, so no CPU quota."""

    policy: cgroups.Policy
    machine: container_limits.Machine
    unthrottled: Callable[[Pod], bool] = lambda pod: False


@dataclass(frozen=True, slots=True)
class ContainerConfigDeps:
    """`node()` gives the node's facts at the time of the call."""

    objects: ConfigObjects
    disk: ContainerDisk
    node: Callable[[], NodeContext]
    warnings: PodWarnings
    cgroups: CgroupFacts
    user_namespaces: UserNamespaces


class ContainerConfigs:
    """Configurations for all pods; each method is described at ContainerConfigs in pods/ports.py."""

    def __init__(self, settings: PodDefaults, deps: ContainerConfigDeps) -> None:
        self._settings = settings
        self._objects, self._disk = deps.objects, deps.disk
        self._node, self._warnings, self._cgroups = deps.node, deps.warnings, deps.cgroups
        self._user_namespaces = deps.user_namespaces
        self._environments = EnvironmentReader(deps.objects, deps.disk)
        self._mounts = MountMaker(settings, deps.disk)

    async def services(self, pod: Pod) -> tuple[Json, ...]:
        """See ContainerConfigs in pods/ports.py."""
        try:
            return tuple(await self._objects.services())
        except Temporary:
            if pod.source == "api":
                raise
            return ()  # a static pod must start without an API server

    async def sandbox_config(self, pod: Pod, prepared: PreparedPod, attempt: int) -> Json:
        """See ContainerConfigs in pods/ports.py."""
        with refuse_malformed(pod):
            policy = self._cgroups.policy.of(throttled=not self._cgroups.unthrottled(pod))
            overhead, whole = container_limits.sandbox_resources(pod, policy)
            return sandbox.sandbox_config(
                pod,
                self._settings,
                await self._dns(pod),
                users=await self._users(pod, prepared),
                cgroup_parent=prepared.cgroup_parent,
                attempt=attempt,
                resources=whole,
                overhead=overhead,
            )

    async def container_config(self, pod: Pod, container: Json, prepared: PreparedPod, inputs: ContainerInputs) -> Json:
        """See ContainerConfigs in pods/ports.py."""
        node = self._node()
        with refuse_malformed(pod):
            names.check_names(pod)
            users = await self._users(pod, prepared)
            context = security.container_context(
                pod,
                container,
                inputs.image,
                self._settings,
                users=users,
                target_id=inputs.target_id,
                extra_masked=node.thermal_throttle_paths,
            )
            env = await self._environments.read(pod, container, prepared, inputs.ips, node)
            made = await self._mounts.make(pod, container, prepared, env, inputs.ips, node)
            made_of = partial(
                container_plan.container_config,
                pod,
                container,
                attempt=inputs.attempt,
                image_ref=inputs.image_ref,
                env=env,
                mounts=made,
                resources=self.container_resources(pod, container),
                security_context=context,
                block_devices=mounts.plan_devices(pod, container, prepared.volumes),
                granted=inputs.devices,
            )
            return await in_thread_if(container_plan.is_long(container), made_of)

    def container_resources(self, pod: Pod, container: Json) -> Json:
        """See ContainerConfigs in pods/ports.py."""
        return container_limits.container_resources(pod, container, self._cgroups.policy, self._cgroups.machine)

    async def _users(self, pod: Pod, prepared: PreparedPod) -> Json:
        return await self._user_namespaces.of(pod, prepared.handler, self._node().user_namespace_handlers)

    async def _dns(self, pod: Pod) -> dns.Dns:
        text = ""
        if self._settings.resolv_conf:
            text = await run_blocking(pod, "DNS", lambda: self._disk.read_text(self._settings.resolv_conf))
        made = dns.pod_dns(pod, self._settings, dns.parse_resolv_conf(text), self._node().host_ips)
        for reason, message in made.warnings:
            self._warnings.warn_once(pod, reason, message)
        return made
