"""What is known of pods and images beyond the life of the agent, in small files."""

from __future__ import annotations

from dataclasses import dataclass

from agent.edge.checkpoint import CheckpointFiles
from agent.exclusive import build_exclusive
from agent.ground import Ground
from agent.plan.pull_records import VerifyPolicy
from agent.work.allocations import Allocations
from agent.work.endings import Endings
from agent.work.exclusive import ExclusiveDesk
from agent.work.pull_records import PullRecords
from nodelib.tasks import Work


@dataclass(frozen=True, slots=True)
class Ledgers:
    """What is known of pods and images beyond the life of the agent, in small files."""

    allocations: Allocations
    endings: Endings
    pulls: PullRecords
    exclusive: ExclusiveDesk

    def tasks(self) -> dict[str, Work]:
        """What writes the files soon after a change."""
        return {"allocations": self.allocations.run, "endings": self.endings.run, "exclusive": self.exclusive.run}


async def build_ledgers(ground: Ground) -> Ledgers:
    """With what earlier agents wrote. Raises NodewrightError for a file that cannot be read."""
    root, clock = ground.settings.paths.root_dir, ground.clock
    images = ground.settings.images
    checkpoints = CheckpointFiles(root)
    pulling, pulled = (CheckpointFiles(f"{root}/image_manager/{name}") for name in ("pulling", "pulled"))
    for records in (pulling, pulled):
        await records.make()
    found = Ledgers(
        Allocations(checkpoints, clock),
        Endings(checkpoints, clock),
        PullRecords(VerifyPolicy(images.verify, images.allowlist), pulling, pulled, clock),
        await build_exclusive(ground),
    )
    await found.allocations.load()
    await found.endings.load()
    await found.pulls.load(ground.made.cri.list_images)
    return found
