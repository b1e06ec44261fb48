"""Joins what outlives the agent process with the files that store it: allocations, terminations, pulls, managers,
users of pods."""

from __future__ import annotations

from dataclasses import dataclass

from agent.build.base import Base
from agent.build.managers import build_managers
from agent.common.edge.checkpoint import CheckpointFiles
from agent.devices.work.devices import DeviceManager
from agent.images.plan.pull_records import VerifyPolicy
from agent.images.work.pull_records import PullRecords
from agent.managers.work import ResourceManagers, TopologyAffinity
from agent.pods.work.terminations import Terminations
from agent.resources.work.allocations import Allocations
from agent.userns.edge import GetSubIds, PodMappings
from agent.userns.work import UserNamespaces
from nodelib.tasks import Work


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The state of pods and images that a restarted agent reads again."""

    allocations: Allocations
    terminations: Terminations
    pulls: PullRecords
    managers: ResourceManagers
    user_namespaces: UserNamespaces

    def tasks(self) -> dict[str, Work]:
        """Name -> long-lived work. Each writes its file soon after a change."""
        return {
            "allocations": self.allocations.run,
            "terminations": self.terminations.run,
            "resource-managers": self.managers.run,
        }


async def build_checkpoints(base: Base, devices: DeviceManager, affinity: TopologyAffinity) -> Checkpoints:
    """Read the files of earlier agents. Raises NodewrightError if one cannot be read."""
    root, clock = base.settings.paths.root_dir, base.clock
    images = base.settings.images
    checkpoints = CheckpointFiles(root)
    pulling, pulled = (CheckpointFiles(f"{root}/image_manager/{name}") for name in ("pulling", "pulled"))
    for records in (pulling, pulled):
        await records.make()
    found = Checkpoints(
        Allocations(checkpoints, clock),
        Terminations(checkpoints, clock),
        PullRecords(VerifyPolicy(images.verify, images.allowlist), pulling, pulled, clock),
        await build_managers(base, devices, affinity),
        UserNamespaces(base.settings.user_namespaces, PodMappings(root), GetSubIds()),
    )
    await found.allocations.load()
    await found.terminations.load()
    await found.user_namespaces.load()
    await found.pulls.load(base.connections.cri.list_images)
    return found
