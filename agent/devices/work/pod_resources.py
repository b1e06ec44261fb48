"""The podresources API, which monitoring agents ask about the devices, CPUs and memory of pods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from agent.common.model.pods import Pod
from agent.common.ports import PodView
from agent.devices.plan import pod_resources as plan
from agent.devices.plan.devices import is_large
from agent.devices.work.devices import DeviceManager
from agent.devices.work.dra import DraManager
from agent.managers.model.cpus import Cpus
from agent.managers.model.memory_blocks import Block
from nodelib.clock import Clock, at_most
from nodelib.errors import NotFound
from nodelib.json_values import Json
from nodelib.threads import in_thread_if

_KNOWN_WITHIN = 5.0  # seconds; clients wait for ten
Method = Callable[[Json], Awaitable[Json]]


class Managers(Protocol):
    """managers/work.py ResourceManagers."""

    @property
    def allocatable_cpus(self) -> Cpus: ...

    @property
    def exclusive_cpus(self) -> Mapping[tuple[str, str], Cpus]: ...

    @property
    def allocatable_memory(self) -> tuple[Block, ...]: ...

    @property
    def assigned_memory(self) -> Mapping[tuple[str, str], tuple[Block, ...]]: ...


class PodResources:
    """The methods of v1.PodResourcesLister, by name. `known`: set once all pods of the node are known."""

    def __init__(
        self,
        pods: PodView,
        devices: DeviceManager,
        claims: DraManager,
        managers: Managers,
        known: asyncio.Event,
        clock: Clock,
    ) -> None:
        self._pods, self._devices, self._claims, self._managers = pods, devices, claims, managers
        self._known, self._clock, self._waits = known, clock, True

    def methods(self) -> Mapping[str, Method]:
        return {"List": self.list, "GetAllocatableResources": self.allocatable, "Get": self.get}

    async def list(self, request: Mapping[str, Any]) -> Json:
        await self._pods_known()
        found = []
        for pod in self._pods.active():
            found.append(self._of(pod))
            await asyncio.sleep(0)  # one pod may have thousands of containers
        return {"pod_resources": found}

    async def allocatable(self, request: Mapping[str, Any]) -> Json:
        plugins, managers = dict(self._devices.plugins), self._managers
        large = is_large(sum(len(one.healthy) for one in plugins.values()))
        return await in_thread_if(
            large, plan.allocatable, plugins, managers.allocatable_cpus, managers.allocatable_memory
        )

    async def get(self, request: Mapping[str, Any]) -> Json:
        """Raises NotFound."""
        await self._pods_known()
        name, namespace = request["pod_name"], request["pod_namespace"]
        pod = self._pods.pod(namespace, name)
        if pod is None:
            raise NotFound(f"pod {name} in namespace {namespace} not found")
        return {"pod_resources": self._of(pod)}

    async def _pods_known(self) -> None:
        """Just after its start an agent would answer that nobody has a device. (Upstream does.)

        Without an API server pods stay unknown: who has waited in vain once does not wait again.
        """
        if not self._known.is_set() and self._waits:
            await at_most(self._clock, _KNOWN_WITHIN, self._known)
            self._waits = False

    def _of(self, pod: Pod) -> Json:
        managers = self._managers
        return plan.pod_resources(
            pod, self._devices.allocations, self._claims.states, managers.exclusive_cpus, managers.assigned_memory
        )
