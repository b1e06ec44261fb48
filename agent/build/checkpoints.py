"""What is known of pods and images beyond the life of the agent, in small files."""

from __future__ import annotations

from dataclasses import dataclass

from agent.build.base import Base
from agent.build.managers import build_managers
from agent.common.edge.checkpoint import CheckpointFiles
from agent.images.plan.pull_records import VerifyPolicy
from agent.images.work.pull_records import PullRecords
from agent.managers.work import ResourceManagers
from agent.pods.work.terminations import Terminations
from agent.resources.work.allocations import Allocations
from nodelib.tasks import Work


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What is known of pods and images beyond the life of the agent, in small files."""

    allocations: Allocations
    endings: Terminations
    pulls: PullRecords
    managers: ResourceManagers

    def tasks(self) -> dict[str, Work]:
        """What writes the files soon after a change."""
        return {
            "allocations": self.allocations.run,
            "endings": self.endings.run,
            "resource managers": self.managers.run,
        }


async def build_checkpoints(ground: Base) -> Checkpoints:
    """With what earlier agents wrote. Raises NodewrightError for a file that cannot be read."""
    root, clock = ground.settings.paths.root_dir, ground.clock
    images = ground.settings.images
    checkpoints = CheckpointFiles(root)
    pulling, pulled = (CheckpointFiles(f"{root}/image_manager/{name}") for name in ("pulling", "pulled"))
    for records in (pulling, pulled):
        await records.make()
    found = Checkpoints(
        Allocations(checkpoints, clock),
        Terminations(checkpoints, clock),
        PullRecords(VerifyPolicy(images.verify, images.allowlist), pulling, pulled, clock),
        await build_managers(ground),
    )
    await found.allocations.load()
    await found.endings.load()
    await found.pulls.load(ground.made.cri.list_images)
    return found
