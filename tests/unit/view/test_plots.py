"""Rates of counters between moments, across restarts, and latencies of the probes between two questions."""

from __future__ import annotations

import pytest

from view.model.pods import Cost
from view.plan.plots import plots


def container(cpu: float, throttled: float = 0.0, memory: float = 5.0) -> Cost:
    figures = {"cpu_seconds": cpu, "throttled_seconds": throttled, "memory_working_set": memory}
    return Cost("container web", f"{cpu} s of CPU", figures)


def probe(runs: float, mean: float, **more: float) -> Cost:
    figures = {"runs": runs, "mean_seconds": mean, "worst_seconds": 1.0, **more}
    return Cost("readinessProbe of web", "httpGet", figures)


def series(history: list[tuple[float, Cost]]) -> dict[str, list[float]]:
    (found,) = plots([(at, (cost,)) for at, cost in history])
    return {one["name"]: one["values"] for one in found["series"]}


def test_counters_become_rates_and_memory_is_as_it_is() -> None:
    found = series([(10, container(1.0)), (12, container(2.0, 0.5, 6.0)), (16, container(2.0, 0.5, 7.0))])
    assert found == {"CPU": [0.5, 0.0], "throttled": [0.25, 0.0], "memory": [6.0, 7.0]}


def test_a_container_that_started_again_counts_from_its_beginning() -> None:
    found = series([(10, container(9.0)), (12, container(0.2)), (14, container(0.6))])
    assert found["CPU"] == [pytest.approx(0.2)]


def test_a_latency_is_that_of_the_probes_since_the_last_question() -> None:
    found = series([(0, probe(10, 0.1)), (3, probe(10, 0.1)), (6, probe(12, 0.25))])
    assert found == {"answers in": [pytest.approx(1.0)]}


def test_a_probe_that_fails_answers_nothing() -> None:
    found = series([(0, probe(10, 0.1, failing=0.0)), (3, probe(20, 0.1, failing=1.0))])
    assert found == {"fails, in": [pytest.approx(0.1)]}
    found = series([(0, probe(10, 0.1, failing=1.0)), (3, probe(20, 0.1, failing=0.0))])
    assert found == {"answers in": [pytest.approx(0.1)]}


def test_one_moment_has_a_text_and_no_series_yet() -> None:
    (found,) = plots([(1, (container(1.0),))])
    assert found["text"] == "1.0 s of CPU" and all(one["values"] == [] for one in found["series"])
    assert plots([]) == []


def test_two_moments_at_once_and_figures_of_a_newer_agent_do_no_harm() -> None:
    assert series([(5, container(1.0)), (5, container(2.0))])["CPU"] == []
    odd = Cost("volume data", "a text", {"other": 1.0})
    (found,) = plots([(1, (odd,)), (2, (odd,))])
    assert found["series"] == []


def test_only_the_first_of_thousands_are_drawn() -> None:
    many = tuple(Cost(f"container {at}", "x" * 5000, {}) for at in range(5000))
    found = plots([(1, many)])
    assert len(found) == 40 and len(found[0]["text"]) < 500
