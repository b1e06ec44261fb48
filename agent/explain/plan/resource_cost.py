"""The resources that a pod's containers and probes use or are denied, with advice where it matters.

A probe's cost is the time from its request to the answer: the CPU of one exec cannot be known, because it is counted in
the container's cgroup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.common.model.pods import Pod
from agent.common.plan.sizes import size_of
from agent.explain.model import Cost
from agent.explain.plan.remedies import Subject, action_for
from agent.probes.model import ProbeAnswer
from agent.probes.plan import FIELDS
from agent.stats.model import ContainerStats, Cpu, PodStats
from nodelib.json_values import Json

_MIN_PERIODS = 50  # CFS periods of 0.1 s; the share of fewer says little
_MIN_RUNS = 5  # the mean of fewer probes says little
# Advice is given from here on: a share of periods, a percentage of the last minute (PSI), a share of the time.
_THROTTLED, _STALLED, _SLOW = 0.05, 20.0, 0.2


def costs(pod: Pod, stats: PodStats | None, probes: Iterable[ProbeAnswer]) -> tuple[Cost, ...]:
    """Of every running container, then of every probe that has run."""
    containers = stats.containers if stats is not None else ()
    return (*(_container(pod, one) for one in containers), *_probes(pod, probes))


def _container(pod: Pod, one: ContainerStats) -> Cost:
    cpu, memory = one.sample.cpu, one.sample.memory
    limit = _cpu_limit(pod, one.name)
    metrics = {
        "cpu_seconds": cpu.usage / 1e9,
        "throttled_seconds": cpu.throttled / 1e9,
        "throttled_share": _throttled_share(cpu),
        "memory_working_set": float(memory.working_set),
        "cpu_stalled_percent": cpu.pressure.some.avg60,
        "memory_stalled_percent": memory.pressure.some.avg60,
    }
    action = _container_action(cpu, limit, Subject(pod.namespace, pod.name, one.name))
    return Cost(f"container {one.name}", _container_text(one, limit), metrics, action)


def _container_text(one: ContainerStats, limit: str) -> str:
    cpu, memory = one.sample.cpu, one.sample.memory
    age = max((one.sample.at - one.started_at) / 1e9, 0.0)
    used = f"{cpu.usage / 1e9:.1f} s of CPU"
    if age >= 1:
        used += f" ({100 * cpu.usage / 1e9 / age:.1f} % of a core since its start)"
    parts = [used]
    if cpu.throttled_periods:
        share = 100 * _throttled_share(cpu)
        parts.append(f"throttled in {share:.0f} % of its periods, {cpu.throttled / 1e9:.1f} s (limit {limit})")
    for what, stall in (("CPU", cpu.pressure.some), ("memory", memory.pressure.some)):
        if stall.avg60 >= 1:
            parts.append(f"waited for {what} for {stall.avg60:.0f} % of the last minute")
    return ", ".join([*parts, f"{size_of(memory.working_set)} of memory"])


def _container_action(cpu: Cpu, limit: str, subject: Subject) -> str:
    if cpu.periods >= _MIN_PERIODS and _throttled_share(cpu) >= _THROTTLED:
        return action_for("CPUThrottled", f"limit {limit}", subject)
    return action_for("CPUStalled", "", subject) if cpu.pressure.some.avg60 >= _STALLED else ""


def _throttled_share(cpu: Cpu) -> float:
    return cpu.throttled_periods / cpu.periods if cpu.periods else 0.0


def _probes(pod: Pod, answers: Iterable[ProbeAnswer]) -> Iterator[Cost]:
    for one in answers:
        cost = one.cost
        if not cost.runs:
            continue
        mean = cost.seconds / cost.runs
        a_minute = 60 / one.period if one.period else 0.0
        share = mean / one.period if one.period else 0.0
        way = _way(pod, one)
        how = "fails, in " if one.fails else ""
        text = f"{way} every {one.period:g} s: {how}{_ms(mean)} on average, {_ms(cost.worst)} at worst of {cost.runs}"
        if share >= _SLOW:
            text += f"; {100 * min(share, 1.0):.0f} % of the time one is under way"
        metrics = {"runs": float(cost.runs), "mean_seconds": mean, "worst_seconds": cost.worst, "a_minute": a_minute}
        metrics["failing"] = float(one.fails)  # by the newest answer; the durations are of all
        slow = share >= _SLOW and cost.runs >= _MIN_RUNS
        action = action_for("ProbeSlow", way, Subject(pod.namespace, pod.name, one.container)) if slow else ""
        yield Cost(f"{FIELDS[one.kind]} of {one.container}", text, metrics, action)


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
