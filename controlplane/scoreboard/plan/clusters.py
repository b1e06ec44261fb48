"""The cluster that a part runs on, the parts that are left, and whether a run still counts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from controlplane.cluster.model import Options
from controlplane.config.model import Custom
from controlplane.scoreboard.model import Group, Part, Partition, Run
from nodelib.errors import Invalid


def options_of(group: Group, maker: str) -> Options:
    """Two nodes with that maker's kubelet and proxy, and nothing else than the group needs."""
    custom = Custom(feature_gates=group.gates, api_server=group.api_server)
    return Options(agent=maker, proxy=maker, demo=False, custom=custom, **group.options)


def named(partition: Partition, pattern: str) -> tuple[Part, ...]:
    """The parts whose names match. Raises Invalid for a pattern that is none, or that no part has."""
    try:
        found = tuple(part for part in partition.parts if re.search(pattern, part.name))
    except re.error as error:
        raise Invalid(
            f"not a regular expression: {error}", obj=f"--parts {pattern}", step="choose the parts"
        ) from error
    if not found:
        raise Invalid(
            "no part has such a name",
            obj=f"--parts {pattern}",
            step="choose the parts",
            action="`conformance --scoreboard --dry-run` lists them.",
        )
    return found


def digest(part: Part) -> str:
    """Changes with the specs of a part."""
    return hashlib.sha256("\n".join(spec.name for spec in part.specs).encode()).hexdigest()[:16]


def current(runs: Mapping[tuple[str, str], Run], parts: Iterable[Part], kubernetes: str) -> dict[tuple[str, str], Run]:
    """The runs of these parts as they are now, of this version of upstream's suites; older ones do not count."""
    wanted = {part.name: digest(part) for part in parts}
    return {
        (name, maker): run
        for (name, maker), run in runs.items()
        if run.digest == wanted.get(name) and run.kubernetes == kubernetes
    }


def left(parts: Iterable[Part], runs: Mapping[tuple[str, str], Run]) -> tuple[tuple[Part, str], ...]:
    """What is still to be run, in order. A part in which no spec ran is run again after those that never were."""
    never, failed = [], []
    for part in parts:
        for maker in part.group.makers:
            run = runs.get((part.name, maker))
            if run is None:
                never.append((part, maker))
            elif not run.outcomes:
                failed.append((part, maker))
    return (*never, *failed)
