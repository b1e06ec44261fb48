"""Which pods use which CSI volume with which SELinux context: two that disagree cannot have it at the same time.

A mount has one context. The second pod waits until the first is gone, as upstream has it, and then the volume is staged
anew. vol_data.json keeps the context across a restart of the agent, under upstream's key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.common.model.pods import Pod
from agent.common.model.selinux import Selinux
from agent.volumes.model.csi import CsiVolume, Published, VolumeKey
from agent.volumes.model.selinux import Context
from agent.volumes.plan import selinux as plan
from nodelib.errors import Invalid, Temporary
from nodelib.json_values import Json


class Counts(Protocol):
    """volumes/edge/selinux_metrics.py."""

    def add(self, what: str, volume: str, mode: str) -> None: ...


class NoCounts:
    def add(self, what: str, volume: str, mode: str) -> None:
        """Nobody asks."""


@dataclass(frozen=True, slots=True)
class _Use:
    """`lives`: the pod has not begun to end in this run of the agent."""

    context: Context
    lives: bool


class CsiContexts:
    """`machine` None: it has no SELinux, and every context is "". `every_mode`: gate SELinuxMount."""

    def __init__(
        self, machine: Selinux | None = None, *, every_mode: bool = True, counts: Counts | None = None
    ) -> None:
        self._machine, self._every_mode = machine, every_mode
        self._counts: Counts = counts or NoCounts()
        self._uses: dict[VolumeKey, dict[str, _Use]] = {}

    @property
    def enabled(self) -> bool:
        return self._machine is not None

    def load(self, published: Mapping[str, Sequence[Published]]) -> None:
        """What an earlier run of the agent has mounted, by UID of the pod."""
        for uid, found in published.items():
            for one in [one for one in found if not one.ephemeral]:
                self._uses.setdefault(one.key, {})[uid] = _Use(Context(one.context, one.context), lives=False)

    def admit(self, pod: Pod, volume: CsiVolume, driver: Json | None, mounted: Published | None) -> str:
        """The context to mount the volume with for the pod, "" for none. Raises Temporary.

        `mounted`: as it is mounted for this pod already, and stays.
        """
        if self._machine is None:
            return ""
        context = self._context(pod, volume, driver, self._machine)
        if volume.ephemeral:  # nobody shares it
            return context.mounted
        if mounted is not None:
            context = Context(context.wanted, mounted.context)
        else:
            self._check(pod, volume, driver, context)
        uses = self._uses.setdefault(volume.key, {})
        if context.wanted and not uses:
            self._count("volumes_admitted", volume)
        uses[pod.uid] = _Use(context, lives=True)
        return context.mounted

    def ends(self, uid: str) -> None:
        """The pod is being ended: others wait for its volumes no longer than until they are unmounted."""
        for uses in self._uses.values():
            if uid in uses:
                uses[uid] = _Use(uses[uid].context, lives=False)

    def ended(self, uid: str, key: VolumeKey) -> None:
        """The volume is unmounted for this pod."""
        uses = self._uses.get(key, {})
        uses.pop(uid, None)
        if not uses:
            self._uses.pop(key, None)

    def _context(self, pod: Pod, volume: CsiVolume, driver: Json | None, machine: Selinux) -> Context:
        try:
            return plan.mount_context(pod, volume, driver, machine, every_mode=self._every_mode)
        except Invalid as error:
            what = "pod_context_mismatch" if isinstance(error, plan.MultipleLabels) else "container"
            if self._is_error(what, volume):
                raise Temporary(error.message, obj=f"pod {pod.full_name}", action=error.action) from error
            return Context()

    def _check(self, pod: Pod, volume: CsiVolume, driver: Json | None, context: Context) -> None:
        """Against the other pods that have the volume."""
        for uid, use in self._uses.get(volume.key, {}).items():
            if uid == pod.uid:
                continue
            differs = use.lives and plan.mounts_with_context(driver) and use.context.wanted != context.wanted
            if differs and self._is_error("volume_context_mismatch", volume):
                message = plan.conflict(volume.spec_name, use.context.wanted, context.wanted)
                raise _in_use(pod, uid, message)
            if use.context.mounted != context.mounted:
                raise _in_use(pod, uid, plan.waiting(volume.key.unique_name))

    def _is_error(self, what: str, volume: CsiVolume) -> bool:
        """Count it. Where volumes of these access modes are not mounted with contexts, it is a warning."""
        enforced = plan.is_enforced(volume, every_mode=self._every_mode)
        self._count(f"{what}_{'errors' if enforced else 'warnings'}", volume)
        return enforced

    def _count(self, what: str, volume: CsiVolume) -> None:
        self._counts.add(what, f"kubernetes.io/csi/{volume.driver}", plan.access_mode(volume))


def _in_use(pod: Pod, other: str, message: str) -> Temporary:
    return Temporary(
        message,
        obj=f"pod {pod.full_name}",
        step="SELinux context",
        action=f"Give both pods the same seLinuxOptions.level, or end the other one (UID {other}); the agent tries"
        " again.",
    )
