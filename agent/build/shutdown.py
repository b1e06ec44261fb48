"""Put together what makes a shutdown of the machine wait for its pods; called by the composition root."""

from __future__ import annotations

from agent.common.edge.checkpoint import CheckpointFiles
from agent.common.metrics_port import Figures
from agent.common.ports import Events
from agent.common.work.observable import Observable
from agent.node.work.node import NodeKeeper
from agent.node.work.shutdown import ShutdownKeeper, ShutdownParts
from agent.pods.work.pod_table import PodTable
from agent.settings import Settings
from nodelib.clock import Clock
from nodelib.tasks import Work


def shutdown_tasks(
    settings: Settings,
    clock: Clock,
    events: Events,
    figures: Figures,
    keeper: NodeKeeper,
    table: PodTable,
    going: Observable[bool],
) -> dict[str, Work]:
    """Name -> long-lived work; none when no grace period is configured."""
    periods = settings.shutdown_periods
    if not periods:
        return {}
    # Only a node that asks for it pays for the bus (5 MB).
    from agent.node.edge.logind import LogindBus

    checkpoints = CheckpointFiles(settings.paths.root_dir)
    parts = ShutdownParts(LogindBus(), table, checkpoints, events, figures, clock, going, lambda: keeper.ref)
    return {"node-shutdown": ShutdownKeeper(periods, parts).run}
