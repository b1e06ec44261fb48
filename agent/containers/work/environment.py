"""Collect what a container's environment refers to, then evaluate it (containers/plan/env.py)."""

from __future__ import annotations

from functools import partial

from agent.common.model.pod_settings import NodeContext
from agent.common.model.pods import Pod
from agent.common.work.namespace_threads import NamespaceThreads
from agent.common.work.pod_errors import run_blocking
from agent.containers.model import PreparedPod
from agent.containers.plan import env as env_plan
from agent.containers.plan.expand import Budget
from agent.containers.ports import ConfigObjects, ContainerDisk
from nodelib.errors import Permanent
from nodelib.json_values import Json
from nodelib.tasks import in_order


class EnvironmentReader:
    """Reads the environment again for each start of a container."""

    def __init__(self, objects: ConfigObjects, disk: ContainerDisk) -> None:
        self._objects, self._disk = objects, disk
        self._threads = NamespaceThreads()

    async def read(
        self, pod: Pod, container: Json, prepared: PreparedPod, ips: tuple[str, ...], node: NodeContext
    ) -> dict[str, str]:
        """Names to values. Raises NodewrightError naming what is missing or malformed."""
        refs = list(env_plan.references(container))
        found = await in_order(*(self._objects.object(pod, ref) for ref in refs))
        files = await self._read_files(pod, container, prepared)
        sources = env_plan.EnvSources(dict(zip(refs, found, strict=True)), prepared.services, ips, node, files)
        return await self._threads.run(pod.namespace, env_plan.environment, pod, container, sources)

    async def _read_files(self, pod: Pod, container: Json, prepared: PreparedPod) -> dict[tuple[str, str], str]:
        """Text by (volume, path) for each fileKeyRef; a file that does not exist is left out."""
        files: dict[tuple[str, str], str] = {}
        budget = Budget()
        for volume, path in env_plan.file_references(container):
            mounted = prepared.volumes.get(volume)
            if mounted is None:
                raise Permanent(
                    f'cannot find the volume "{volume}" referenced by FileKeyRef', obj=f"pod {pod.full_name}"
                )
            text = await run_blocking(pod, f"file {path}", partial(self._disk.read_inside, mounted.path, path))
            if text is not None:
                files[volume, path] = budget.take(text)
        return files
