"""Small plots of what a pod uses: rates of its counters between two moments, and what is measured as it is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nodelib.json_values import Json
from nodelib.text import one_line
from view.model.pods import Cost

Moment = tuple[float, tuple[Cost, ...]]  # wall seconds, and what was answered then
Figures = Mapping[str, float]
_TEXT = 400  # bytes
_MOST = 40  # containers and probes


@dataclass(frozen=True, slots=True)
class _Plot:
    """`value(before, now, seconds)`: None where the two moments say nothing. `unit`: how the page writes it."""

    name: str
    unit: str
    value: Callable[[Figures, Figures, float], float | None]


def plots(history: Sequence[Moment]) -> list[Json]:
    """Of everything in the newest moment: its text, and a series for each plot."""
    if not history:
        return []
    found = []
    for cost in history[-1][1][:_MOST]:
        moments = [(at, one.figures) for at, costs in history for one in costs if one.of == cost.of]
        found.append(
            {
                "of": one_line(cost.of, _TEXT),
                "text": one_line(cost.text, _TEXT),
                "action": one_line(cost.action, _TEXT),
                "series": [
                    {"name": plot.name, "unit": plot.unit, "values": list(_series(plot, moments))}
                    for plot in _plots_of(cost)
                ],
            }
        )
    return found


def _series(plot: _Plot, moments: Sequence[tuple[float, Figures]]) -> Iterator[float]:
    for (begin, before), (end, now) in pairwise(moments):
        value = plot.value(before, now, end - begin) if end > begin else None
        if value is not None:
            yield value


def _rate(name: str) -> Callable[[Figures, Figures, float], float | None]:
    def of(before: Figures, now: Figures, seconds: float) -> float | None:
        if name not in before or name not in now or now[name] < before[name]:  # it started again
            return None
        return (now[name] - before[name]) / seconds

    return of


def _latency(before: Figures, now: Figures, seconds: float) -> float | None:
    """Of the probes between the two moments, on average; None if there was none."""
    runs = now.get("runs", 0.0) - before.get("runs", 0.0)
    if runs <= 0:
        return None
    whole = now["mean_seconds"] * now["runs"] - before.get("mean_seconds", 0.0) * before.get("runs", 0.0)
    return max(0.0, whole / runs)


def _memory(before: Figures, now: Figures, seconds: float) -> float | None:
    return now.get("memory_working_set")


_CONTAINER = (
    _Plot("CPU", "cores", _rate("cpu_seconds")),
    _Plot("throttled", "share", _rate("throttled_seconds")),
    _Plot("memory", "bytes", _memory),
)
_PROBE = (_Plot("answers in", "seconds", _latency),)
_FAILING_PROBE = (_Plot("fails, in", "seconds", _latency),)


def _plots_of(cost: Cost) -> tuple[_Plot, ...]:
    if "mean_seconds" in cost.figures:
        return _FAILING_PROBE if cost.figures.get("failing") else _PROBE
    return _CONTAINER if "cpu_seconds" in cost.figures else ()
