"""Make a container's mounts: volumes and their sub paths, /etc/hosts, the termination message file."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from agent.common.model.pod_settings import NodeContext, PodDefaults, PodPaths
from agent.common.model.pods import Pod
from agent.common.work.pod_errors import run_blocking
from agent.containers.model import MountPlan, PreparedPod
from agent.containers.plan import container as container_plan
from agent.containers.plan import hosts, sandbox
from agent.containers.plan import mounts as mounts_plan
from agent.containers.ports import ContainerDisk
from nodelib.errors import NodewrightError, Permanent
from nodelib.json_values import Json


class MountMaker:
    """Makes new mounts for each start of a container."""

    def __init__(self, settings: PodDefaults, disk: ContainerDisk) -> None:
        self._settings, self._disk = settings, disk

    async def make(
        self,
        pod: Pod,
        container: Json,
        prepared: PreparedPod,
        env: dict[str, str],
        ips: tuple[str, ...],
        node: NodeContext,
    ) -> list[Json]:
        """CRI Mounts, after writing or binding what they name. Raises NodewrightError."""
        rro = prepared.handler in node.recursive_read_only_handlers
        plans = mounts_plan.plan_mounts(
            pod, container, prepared.volumes, env, recursive_read_only=rro, selinux=node.selinux
        )
        return await run_blocking(pod, "mounts", lambda: self._make(pod, container, plans, prepared, ips, node.selinux))

    def _make(
        self,
        pod: Pod,
        container: Json,
        plans: Sequence[MountPlan],
        prepared: PreparedPod,
        ips: tuple[str, ...],
        selinux: bool,
    ) -> list[Json]:
        paths = PodPaths(self._settings.root_dir, pod.uid)
        name = container["name"]
        made = [container_plan.cri_mount(plan, self._bind_sub_path(pod, name, plan, prepared, paths)) for plan in plans]
        made += self._hosts_file(pod, container, ips, paths, selinux)
        made += self._termination_message_file(container, paths, selinux)
        self._disk.make_directory(f"{sandbox.pod_log_directory(pod, self._settings)}/{name}", 0o755)
        return made

    def _hosts_file(
        self, pod: Pod, container: Json, ips: tuple[str, ...], paths: PodPaths, selinux: bool
    ) -> list[Json]:
        if mounts_plan.mounts_etc_hosts(container):
            return []
        node_hosts = self._disk.read_text(self._settings.hosts_file) if pod.host_network else ""
        text = hosts.hosts_file(pod, ips, self._settings.cluster_domain, node_hosts)
        if text is None:
            return []
        self._disk.write_text(paths.etc_hosts, text, 0o644)
        return [container_plan.file_mount(mounts_plan.ETC_HOSTS, paths.etc_hosts, selinux=selinux)]

    def _termination_message_file(self, container: Json, paths: PodPaths, selinux: bool) -> list[Json]:
        target = container_plan.termination_path(container)
        if not target:
            return []
        directory = paths.container(container["name"])
        source = f"{directory}/{secrets.token_hex(4)}"
        self._disk.make_directory(directory, 0o750)
        self._disk.write_text(source, "", 0o666)
        return [container_plan.file_mount(target, source, selinux=selinux)]

    def _bind_sub_path(self, pod: Pod, container: str, plan: MountPlan, prepared: PreparedPod, paths: PodPaths) -> str:
        """The host path of the mount's sub path; "" for a mount without one."""
        sub = plan.sub_path
        if sub is None:
            return ""
        target = paths.sub_path(sub.volume, container, sub.index)
        try:
            volume, both_ways = prepared.volumes[sub.volume].path, plan.propagation == mounts_plan.BIDIRECTIONAL
            return self._disk.bind_sub_path(volume, sub.path, target, keeps_peers=both_ways)
        except (NodewrightError, OSError) as error:
            # The cause may name files of the host: it stays in the chained exception.
            raise Permanent(
                f'failed to prepare subPath for volumeMount "{sub.volume}" of container "{container}"',
                obj=f"pod {pod.full_name}",
                step=f"subPath {sub.path!r}",
                action="Make sure that it is inside the volume and that links in it do not lead out of it.",
            ) from error
