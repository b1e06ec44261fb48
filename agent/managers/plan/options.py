"""cpuManagerPolicyOptions and topologyManagerPolicyOptions: which exist and which exclude each other.

Follows policy_options.go of pkg/kubelet/cm/cpumanager and topologymanager, with its feature gates and messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodelib.errors import Invalid

FULL_CORES = "full-pcpus-only"
ACROSS_NUMA = "distribute-cpus-across-numa"
BY_SOCKET = "align-by-socket"
ACROSS_CORES = "distribute-cpus-across-cores"
STRICT = "strict-cpu-reservation"
BY_UNCORE = "prefer-align-cpus-by-uncorecache"
CLOSEST = "prefer-closest-numa-nodes"
MOST_NODES = "max-allowable-numa-nodes"

_LEVELS = {
    FULL_CORES: "",
    STRICT: "",
    BY_UNCORE: "",
    ACROSS_NUMA: "Beta",
    BY_SOCKET: "Alpha",
    ACROSS_CORES: "Alpha",
}
_EXCLUDE = (
    (FULL_CORES, ACROSS_CORES),
    (ACROSS_NUMA, ACROSS_CORES),
    (BY_UNCORE, ACROSS_CORES),
    (BY_UNCORE, ACROSS_NUMA),
)
_MOST_NODES = 8
_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False"}


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """One field for each option of the static CPU manager."""

    full_cores: bool = False
    across_numa: bool = False
    by_socket: bool = False
    across_cores: bool = False
    strict: bool = False
    by_uncore: bool = False


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """One field for each option of the topology manager."""

    closest: bool = False
    most_nodes: int = _MOST_NODES


def cpu_options(given: Mapping[str, str], gates: Mapping[str, bool]) -> CpuOptions:
    """`gates`: feature gates, and whether they are on. Raises Invalid."""
    found: dict[str, bool] = {}
    for name, text in sorted(given.items()):
        level = _LEVELS.get(name)
        if level is None:
            raise Invalid(f'unknown CPU Manager Policy option: "{name}"')
        gate = f"CPUManagerPolicy{level}Options"
        if level and not gates[gate]:
            raise Invalid(
                f'CPU Manager Policy {level}-level Options not enabled, but option "{name}" provided',
                action=f"Set featureGates.{gate}: true, or leave the option out.",
            )
        found[name] = _boolean(name, text)
    for one, other in _EXCLUDE:
        if found.get(one) and found.get(other):
            raise Invalid(f"static policy options {one} and {other} can not be used at the same time")
    return CpuOptions(
        found.get(FULL_CORES, False),
        found.get(ACROSS_NUMA, False),
        found.get(BY_SOCKET, False),
        found.get(ACROSS_CORES, False),
        found.get(STRICT, False),
        found.get(BY_UNCORE, False),
    )


def topology_options(given: Mapping[str, str]) -> TopologyOptions:
    """Raises Invalid."""
    for name in given:
        if name not in (CLOSEST, MOST_NODES):
            raise Invalid(f'unknown Topology Manager Policy option: "{name}"')
    closest = _boolean(CLOSEST, given[CLOSEST]) if CLOSEST in given else False
    text = given.get(MOST_NODES, str(_MOST_NODES))
    try:
        most = int(text)
    except ValueError as error:
        raise Invalid(f'unable to convert policy option to integer "{MOST_NODES}": {text!r}') from error
    if most < _MOST_NODES:
        raise Invalid(f'the minimum value of "{MOST_NODES}" should not be less than {_MOST_NODES}')
    return TopologyOptions(closest, most)


def _boolean(name: str, text: str) -> bool:
    """As Go's strconv.ParseBool."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise Invalid(f'bad value for option "{name}": {text!r} is neither true nor false')
