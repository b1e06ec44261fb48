"""Refused packets for the page of `view`, from the policy daemons of the nodes as they happen."""

from __future__ import annotations

import os

from cli.policies import sources
from cli.policies.drops_text import refused_by
from cli.policies.follow import follow_node
from cli.policies.keys import refusing
from controlplane.cluster.model import Cluster
from nodelib.tasks import side_by_side
from policy.drops.plan.document import ReportedDrop
from view.model.network import Refused
from view.ports import Refusals


async def follow(cluster: Cluster | None, taker: Refusals) -> None:
    """Until cancelled; returns where nothing can be told, having said why."""
    if cluster is not None and not cluster.options.enforces_policies:
        taker.problem("", f"{sources.NOT_ENFORCED}.")
        return
    paths = sources.sockets(cluster)
    if os.geteuid() != 0 or (cluster is None and not any(map(os.path.exists, paths.values()))):
        taker.problem("", "The policy daemons of the nodes answer root on their own machine.")
        return
    await side_by_side(**{node: follow_node(node, path, _Taker(taker)) for node, path in paths.items()})


class _Taker:
    def __init__(self, taker: Refusals) -> None:
        self._taker = taker

    def take(self, node: str, found: tuple[ReportedDrop, ...]) -> None:
        self._taker.take([_refused(node, one) for one in found])

    def problem(self, node: str, text: str) -> None:
        self._taker.problem(node, text)


def _refused(node: str, one: ReportedDrop) -> Refused:
    return Refused(
        node,
        one.last,
        one.count,
        one.direction.lower(),
        one.client.pod or one.client.address,
        one.server.pod or one.server.address,
        one.port_words,
        refused_by(one),
        one.remedy,
        refusing(one.policies, one.denied),
    )
