"""Put together what makes a shutdown of the machine wait for its pods; called by the composition root."""

from __future__ import annotations

from agent import derive
from agent.edge.checkpoint import CheckpointFiles
from agent.figures import Figures
from agent.ports import Events
from agent.settings import Settings
from agent.work.node import NodeKeeper
from agent.work.pod_table import PodTable
from agent.work.shutdown import ShutdownKeeper, ShutdownParts
from agent.work.told import Told
from nodelib.clock import Clock
from nodelib.tasks import Work


def shutdown_tasks(
    settings: Settings,
    clock: Clock,
    events: Events,
    figures: Figures,
    keeper: NodeKeeper,
    table: PodTable,
    going: Told[bool],
) -> dict[str, Work]:
    """Name -> long-lived work; none when no grace period is configured."""
    periods = derive.shutdown_periods(settings)
    if not periods:
        return {}
    # Only a node that asks for it pays for the bus (5 MB).
    from agent.edge.logind import LogindBus

    checkpoints = CheckpointFiles(settings.paths.root_dir)
    parts = ShutdownParts(LogindBus(), table, checkpoints, events, figures, clock, going, lambda: keeper.ref)
    return {"node-shutdown": ShutdownKeeper(periods, parts).run}
