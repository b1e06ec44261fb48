"""What one container sees of its pod: the environment, and its mounts with what they lead to on disk."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from functools import partial

from agent.common.model.pod_settings import NodeContext, PodDefaults, PodPaths
from agent.common.model.pods import Json, Pod
from agent.containers.model import MountPlan, PreparedPod
from agent.containers.plan import container as container_plan
from agent.containers.plan import env as env_plan
from agent.containers.plan import hosts, sandbox
from agent.containers.plan import mounts as mounts_plan
from agent.volumes.work.faults import blocking
from agent.volumes.work.world import Disk, Objects
from nodelib.errors import NodewrightError, Permanent


class ContainerViews:
    """Made anew for each start of a container: its environment, sub paths, hosts file and termination log."""

    def __init__(self, settings: PodDefaults, objects: Objects, disk: Disk) -> None:
        self._settings, self._objects, self._disk = settings, objects, disk

    async def environment(
        self, pod: Pod, container: Json, materials: PreparedPod, ips: tuple[str, ...], node: NodeContext
    ) -> dict[str, str]:
        refs = list(env_plan.references(container))
        found = await asyncio.gather(*(self._objects.object(pod, ref) for ref in refs))
        files: dict[tuple[str, str], str] = {}
        for volume, path in env_plan.file_references(container):
            mounted = materials.volumes.get(volume)
            if mounted is None:
                raise Permanent(
                    f'cannot find the volume "{volume}" referenced by FileKeyRef', obj=f"pod {pod.full_name}"
                )
            text = await blocking(pod, f"file {path}", partial(self._disk.read_inside, mounted.path, path))
            if text is not None:
                files[volume, path] = text
        sources = env_plan.EnvSources(dict(zip(refs, found, strict=True)), materials.services, ips, node, files)
        return env_plan.environment(pod, container, sources)

    async def mounts(
        self,
        pod: Pod,
        container: Json,
        materials: PreparedPod,
        variables: dict[str, str],
        ips: tuple[str, ...],
        node: NodeContext,
    ) -> list[Json]:
        handler = str(pod.spec.get("runtimeClassName") or "")
        rro = handler in node.recursive_read_only_handlers
        plans = mounts_plan.plan_mounts(pod, container, materials.volumes, variables, recursive_read_only=rro)
        return await blocking(pod, "mounts", lambda: self._make_mounts(pod, container, plans, materials, ips))

    def _make_mounts(
        self, pod: Pod, container: Json, plans: Sequence[MountPlan], materials: PreparedPod, ips: tuple[str, ...]
    ) -> list[Json]:
        paths = PodPaths(self._settings.root_dir, pod.uid)
        name = container["name"]
        made = [container_plan.cri_mount(plan, self._sub_path(pod, name, plan, materials, paths)) for plan in plans]
        if not mounts_plan.mounts_etc_hosts(container):
            node_hosts = self._disk.read_text(self._settings.hosts_file) if pod.host_network else ""
            text = hosts.hosts_file(pod, ips, self._settings.cluster_domain, node_hosts)
            if text is not None:
                self._disk.write_text(paths.etc_hosts, text, 0o644)
                made.append(container_plan.file_mount(mounts_plan.ETC_HOSTS, paths.etc_hosts))
        target = container_plan.termination_path(container)
        if target:
            source = f"{paths.container(name)}/{secrets.token_hex(4)}"
            self._disk.make_directory(paths.container(name), 0o750)
            self._disk.write_text(source, "", 0o666)
            made.append(container_plan.file_mount(target, source))
        self._disk.make_directory(f"{sandbox.pod_log_directory(pod, self._settings)}/{name}", 0o755)
        return made

    def _sub_path(self, pod: Pod, container: str, plan: MountPlan, materials: PreparedPod, paths: PodPaths) -> str:
        sub = plan.sub_path
        if sub is None:
            return ""
        target = paths.sub_path(sub.volume, container, sub.index)
        try:
            return self._disk.bind_sub_path(materials.volumes[sub.volume].path, sub.path, target)
        except (NodewrightError, OSError) as error:
            # The cause may name files of the host: it stays in the chained exception.
            raise Permanent(
                f'failed to prepare subPath for volumeMount "{sub.volume}" of container "{container}"',
                obj=f"pod {pod.full_name}",
                step=f"subPath {sub.path!r}",
                action="See that it is inside the volume and that links in it do not lead out of it.",
            ) from error
