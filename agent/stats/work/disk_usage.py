"""What pods use on disk: their volumes, and the files that the agent makes for them.

Walking a volume costs more than anything else here, so the result is kept for a time that grows with what it cost.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Pod
from agent.stats.model import FsUsage, VolumeStats
from agent.stats.ports import MachineReadings
from nodelib.clock import Clock
from nodelib.json_values import Json

log = logging.getLogger(__name__)

_VOLUMES_FRESH = 60.0  # seconds; upstream's volumeStatsAggPeriod
_VOLUMES_SOON = 10.0  # seconds; the minimum, so that a pod beyond its limit is evicted soon
_VOLUMES_SHARE = 100  # measuring may take 1/100 of the time
_PLUGIN_PREFIX = "kubernetes.io~"
# Their directories are named after PersistentVolumes, not after the pod's volumes.
_NOT_MEASURED_HERE = frozenset({f"{_PLUGIN_PREFIX}csi", f"{_PLUGIN_PREFIX}local-volume"})
_ON_TMPFS = {"secret", "projected", "downward-api"}


@dataclass(frozen=True, slots=True)
class _Measured:
    """The volumes of a pod, and when (monotonic seconds) they may be measured again."""

    refresh_at: float
    volumes: tuple[VolumeStats, ...]


class DiskUsage:
    """Measures pods below `root_dir`. Everything here blocks: call it in a thread.

    `measured(source, seconds)`: how long a volume took, by "du" or "statfs".
    """

    def __init__(
        self,
        machine: MachineReadings,
        clock: Clock,
        root_dir: str,
        measured: Callable[[str, float], None] = lambda source, seconds: None,
    ) -> None:
        self._machine, self._clock, self._root_dir, self._measured = machine, clock, root_dir, measured
        self._volumes: dict[str, _Measured] = {}

    def keep(self, uids: Container[str]) -> None:
        """Drop what is known of all other pods."""
        self._volumes = {uid: kept for uid, kept in self._volumes.items() if uid in uids}

    def volumes(self, uid: str, pod: Pod | None) -> tuple[VolumeStats, ...]:
        """Volumes of the pod whose usage the kernel or a walk over their files shows; CSI volumes are left out."""
        kept = self._volumes.get(uid)
        began = self._clock.monotonic()
        if kept is not None and began < kept.refresh_at:
            return kept.volumes
        specs = {entry["name"]: entry for entry in (pod.spec.get("volumes") or [] if pod is not None else [])}
        found = tuple(
            volume
            for plugin, name, path in self._machine.volumes_of(os.path.join(self._root_dir, "pods"), uid)
            if plugin not in _NOT_MEASURED_HERE
            and (volume := self._volume(plugin.removeprefix(_PLUGIN_PREFIX), name, path, specs.get(name, {}), pod))
            is not None
        )
        now = self._clock.monotonic()
        refresh_at = now + min(max((now - began) * _VOLUMES_SHARE, _VOLUMES_SOON), _VOLUMES_FRESH)
        self._volumes[uid] = _Measured(refresh_at, found)
        return found

    def own_files(self, uid: str) -> FsUsage:
        """What containers can write into the files that the agent makes for them: /etc/hosts, termination messages."""
        paths = PodPaths(self._root_dir, uid)
        hosts, messages = self.tree(paths.etc_hosts), self.tree(paths.containers)
        return replace(
            hosts,
            used=hosts.used + messages.used,
            inodes_used=hosts.inodes_used + messages.inodes_used,
            unread=hosts.unread or messages.unread,
        )

    def tree(self, path: str) -> FsUsage:
        """What a file, or a directory with all below it, uses. Raises Temporary, as MachineReadings.tree()."""
        found = self._machine.tree(path)
        if found.unread:
            log.warning("%s counts as over every limit: a part of it cannot be read: %s", path, found.unread)
        at = int(self._clock.now() * 1_000_000_000)
        return FsUsage(at, used=found.used, inodes_used=found.inodes, unread=found.unread)

    def _volume(self, plugin: str, name: str, path: str, spec: Json, pod: Pod | None) -> VolumeStats | None:
        began = self._clock.monotonic()
        usage = self._machine.filesystem(path)
        if usage is None:
            return None
        claim = (spec.get("persistentVolumeClaim") or {}).get("claimName", "")
        if "ephemeral" in spec and pod is not None:
            claim = f"{pod.name}-{name}"
        if claim:
            self._measured("statfs", self._clock.monotonic() - began)
            return VolumeStats(name, usage, claim=claim)
        own = self.tree(path)
        self._measured("du", self._clock.monotonic() - began)
        on_disk = plugin not in _ON_TMPFS and (spec.get("emptyDir") or {}).get("medium") != "Memory"
        ephemeral = on_disk and plugin in ("empty-dir", "configmap", "git-repo")
        usage = replace(usage, used=own.used, inodes_used=own.inodes_used, unread=own.unread)
        return VolumeStats(name, usage, ephemeral=ephemeral)
