"""Joins graceful node shutdown: a shutdown of the machine waits until its pods have ended."""

from __future__ import annotations

from agent.build.base import Base
from agent.common.edge.checkpoint import CheckpointFiles
from agent.node.work.node import NodeManager
from agent.node.work.shutdown import NodeShutdownDeps, NodeShutdownManager
from nodelib.tasks import Work


def shutdown_tasks(base: Base, keeper: NodeManager) -> dict[str, Work]:
    """Name -> long-lived work; none when no grace period is configured."""
    periods = base.settings.shutdown_periods
    if not periods:
        return {}
    # Imported here because the D-Bus client costs 5 MB of memory, and few nodes use it.
    from agent.node.edge.logind import LogindBus

    parts = NodeShutdownDeps(
        LogindBus(),
        base.pods,
        CheckpointFiles(base.settings.paths.root_dir),
        base.events,
        base.metrics,
        base.clock,
        base.shutting_down,
        lambda: keeper.ref,
    )
    return {"node-shutdown": NodeShutdownManager(periods, parts).run}
