"""What a pod's probes cost, and what its containers are kept from: measured figures with advice where they matter.

The CPU of one exec is known to nobody: it is counted in its container's cgroup. A probe's cost is the time from asking
to its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.common.model.pods import Pod
from agent.common.plan.sizes import size_of
from agent.explain.model import Cost
from agent.explain.plan.remedies import Subject, action_for
from agent.probes.model import ProbeAnswer
from agent.probes.plan import FIELDS
from agent.stats.model import ContainerStats, PodStats
from nodelib.json_values import Json

_FEW = 50  # periods of 0.1 s, or so many probes, say little
_THROTTLED, _STALLED, _SLOW = 0.05, 20.0, 0.2  # from which share (percent for PSI) on advice is given


def costs(pod: Pod, figures: PodStats | None, probes: Iterable[ProbeAnswer]) -> tuple[Cost, ...]:
    """Of every running container, then of every probe that has run."""
    containers = figures.containers if figures is not None else ()
    return (*(_container(pod, one) for one in containers), *_probes(pod, probes))


def _container(pod: Pod, one: ContainerStats) -> Cost:
    cpu, memory = one.sample.cpu, one.sample.memory
    seconds = max((one.sample.at - one.started_at) / 1e9, 0.0)
    share = cpu.throttled_periods / cpu.periods if cpu.periods else 0.0
    limit = _cpu_limit(pod, one.name)
    figures = {
        "cpu_seconds": cpu.usage / 1e9,
        "throttled_seconds": cpu.throttled / 1e9,
        "throttled_share": share,
        "memory_working_set": float(memory.working_set),
        "cpu_stalled_percent": cpu.pressure.some.avg60,
        "memory_stalled_percent": memory.pressure.some.avg60,
    }
    parts = [f"{cpu.usage / 1e9:.1f} s of CPU"]
    if seconds >= 1:
        parts[0] += f" ({100 * cpu.usage / 1e9 / seconds:.1f} % of a core since its start)"
    if cpu.throttled_periods:
        parts.append(f"throttled in {100 * share:.0f} % of its periods, {cpu.throttled / 1e9:.1f} s (limit {limit})")
    for what, stall in (("CPU", cpu.pressure.some), ("memory", memory.pressure.some)):
        if stall.avg60 >= 1:
            parts.append(f"waited for {what} for {stall.avg60:.0f} % of the last minute")
    parts.append(f"{size_of(memory.working_set)} of memory")
    subject = Subject(pod.namespace, pod.name, one.name)
    action = ""
    if cpu.periods >= _FEW and share >= _THROTTLED:
        action = action_for("CPUThrottled", f"limit {limit}", subject)
    elif cpu.pressure.some.avg60 >= _STALLED:
        action = action_for("CPUStalled", "", subject)
    return Cost(f"container {one.name}", ", ".join(parts), figures, action)


def _probes(pod: Pod, answers: Iterable[ProbeAnswer]) -> Iterator[Cost]:
    for one in answers:
        cost = one.cost
        if not cost.runs:
            continue
        mean = cost.seconds / cost.runs
        often = 60 / one.period if one.period else 0.0
        share = mean / one.period if one.period else 0.0
        way = _way(pod, one)
        told = f"{way} every {one.period:g} s: {_ms(mean)} on average, {_ms(cost.worst)} at worst of {cost.runs}"
        if share >= _SLOW:
            told += f"; {100 * min(share, 1.0):.0f} % of the time one is under way"
        figures = {"runs": float(cost.runs), "mean_seconds": mean, "worst_seconds": cost.worst, "a_minute": often}
        slow = share >= _SLOW and cost.runs >= 5
        action = action_for("ProbeSlow", way, Subject(pod.namespace, pod.name, one.container)) if slow else ""
        yield Cost(f"{FIELDS[one.kind]} of {one.container}", told, figures, action)


def _way(pod: Pod, one: ProbeAnswer) -> str:
    spec = _spec(pod, one.container).get(FIELDS[one.kind]) or {}
    return next((way for way in ("exec", "httpGet", "tcpSocket", "grpc") if spec.get(way) is not None), "asked")


def _cpu_limit(pod: Pod, name: str) -> str:
    own = ((_spec(pod, name).get("resources") or {}).get("limits") or {}).get("cpu")
    whole = ((pod.spec.get("resources") or {}).get("limits") or {}).get("cpu")
    return str(own or whole or "of its pod")


def _spec(pod: Pod, name: str) -> Json:
    found = pod.container(name)
    return found[1] if found is not None else {}


def _ms(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
