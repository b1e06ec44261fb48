"""The cluster that a part runs on, and which parts a pattern names."""

from __future__ import annotations

import re

from controlplane.cluster.model import Options
from controlplane.config.model import Custom
from controlplane.scoreboard.model import Group, Part, Partition
from nodelib.errors import WrongUsage


def options_of(group: Group, maker: str) -> Options:
    """Two nodes with that maker's kubelet and proxy, and nothing else than the group needs."""
    custom = Custom(feature_gates=group.gates, api_server=group.api_server, controller_manager=group.controller_manager)
    return Options(agent=maker, proxy=maker, demo=False, custom=custom, **group.options)


def named(partition: Partition, pattern: str) -> tuple[Part, ...]:
    """The parts whose names match. Raises Invalid for a pattern that is none, or that no part has."""
    try:
        found = tuple(part for part in partition.parts if re.search(pattern, part.name))
    except re.error as error:
        raise WrongUsage(
            f"not a regular expression: {error}", obj=f"--parts {pattern}", step="choose the parts"
        ) from error
    if not found:
        raise WrongUsage(
            "no part has such a name",
            obj=f"--parts {pattern}",
            step="choose the parts",
            action="`conformance --scoreboard --dry-run` lists them.",
        )
    return found
