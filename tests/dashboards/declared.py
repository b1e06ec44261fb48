"""What upstream's kubelet declares, whether or not a scrape has shown it, and which of that ours serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from controlplane.compatibility.plan.metrics import Declared, from_facts
from nodelib.upstream import answers
from tests.dashboards import facts
from tests.dashboards.series import Series, series_of

_GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "agent"
# What is exposed without a registry is known from the last scrape only.
_SCRAPED = ("kubelet /metrics/resource",)


@cache
def declared() -> tuple[Declared, ...]:
    """By name."""
    return tuple(from_facts(answers.facts("metrics")))


@cache
def served() -> Mapping[str, Series]:
    """By name, of the kubelet's endpoints but cAdvisor's: as tests/unit/agent/build/test_exposition.py finds them."""
    endpoints = facts.read("nodewright").endpoints
    found = {name: one for endpoint in _SCRAPED for name, one in endpoints[endpoint].items()}
    for file in ("metrics.txt", "metrics_probes.txt"):
        # Without values, as the file has none: any will do.
        lines = (_GOLDEN / file).read_text().splitlines()
        found.update(series_of("\n".join(one if one.startswith("#") else f"{one} 1" for one in lines)))
    return found


def unserved() -> Iterator[Declared]:
    return (one for one in declared() if one.name not in served())


def unlike() -> Iterator[tuple[str, str]]:
    """(metric, difference) of those that ours serves with another kind or without a label."""
    for one in declared():
        mine = served().get(one.name)
        if mine is not None and mine.kind != one.kind:
            yield one.name, f"is a {mine.kind}, not a {one.kind}"
        if mine is not None and not mine.labels >= set(one.labels):
            yield one.name, f"lacks {', '.join(sorted(set(one.labels) - mine.labels))}"
