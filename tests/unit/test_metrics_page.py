"""docs/metrics.md is what was measured last, says why of each difference, and our dashboards are ones for Grafana."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from nodelib.json_values import Json
from tests.dashboards import facts, grafana
from tests.dashboards.declared import declared, served, unlike, unserved
from tests.dashboards.page import PAGE, differing, missing, page, reason, silent
from tests.dashboards.queries import QUERIES, is_incidental
from tests.dashboards.reasons import LABELS, MISSING, OWN, SILENT, WAITS
from tests.dashboards.series import Series, series_of

OURS, THEIRS = (facts.read(maker) for maker in facts.MAKERS)
EXPOSED = """\
# HELP kubelet_evictions Evictions
# TYPE kubelet_evictions counter
kubelet_evictions{eviction_signal="memory.available"} 1
# TYPE took_seconds histogram
took_seconds_bucket{le="1",name="a } \\"b"} 1
took_seconds_count{name="a"} 1
# TYPE took_count gauge
took_count 3 1700000000000
"""


def test_names_are_those_that_a_query_has_to_ask_for() -> None:
    assert series_of(EXPOSED) == {
        "kubelet_evictions": Series("counter", frozenset({"eviction_signal"})),
        "took_seconds": Series("histogram", frozenset({"name"})),
        "took_count": Series("gauge", frozenset()),
    }


def test_the_page_is_made_from_the_facts() -> None:
    assert PAGE.read_text() == page(OURS, THEIRS), "make it again: python -m tests.dashboards"


def test_each_difference_has_a_reason() -> None:
    assert [name for _, name, _ in missing(OURS, THEIRS) if not reason(MISSING, name)] == []
    assert [name for _, name, _ in differing(OURS, THEIRS) if not reason(LABELS, name)] == []
    assert [one.text for one in silent(OURS) if not reason(SILENT, one.text)] == []
    assert {name for name, _ in (*MISSING, *LABELS, *SILENT, *OWN)} >= {"*"}


def test_each_metric_that_upstreams_kubelet_declares_is_served_or_answered() -> None:
    assert [one.name for one in unserved() if not reason(MISSING, one.name)] == []
    assert list(unlike()) == [], "served, but not as upstream's"


def test_a_metric_without_an_answer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not reason(MISSING, "kubelet_new_in_the_next_release_total")
    without = {name: one for name, one in served().items() if name != "kubelet_evictions"}
    monkeypatch.setattr("tests.dashboards.declared.served", lambda: without)
    assert [one.name for one in unserved() if not reason(MISSING, one.name)] == ["kubelet_evictions"]


def test_no_answer_is_given_for_what_is_served() -> None:
    answered = {one.name: reason(MISSING, one.name) for one in declared() if one.name in served()}
    assert {name: why for name, why in answered.items() if why and why not in WAITS} == {}


def test_what_has_data_with_upstreams_daemons_has_data_with_ours() -> None:
    assert [one.text for one in OURS.silent - THEIRS.silent if not is_incidental(one)] == []


def test_no_query_is_asked_twice_for_one_panel() -> None:
    assert [one for one, count in Counter(QUERIES).items() if count > 1] == []


def test_our_dashboards_are_pod_start_and_service_sync() -> None:
    assert [one["title"] for one in grafana.dashboards().values()] == ["Pod start stages", "Service sync"]


@pytest.mark.parametrize("dashboard", grafana.dashboards().values(), ids=lambda one: one["title"])
def test_grafana_can_show_a_dashboard(dashboard: Json) -> None:
    assert dashboard["schemaVersion"] >= 39 and dashboard["uid"]
    variables = {f"${one['name']}" for one in dashboard["templating"]["list"]} | {"$__rate_interval"}
    places = []
    for panel in dashboard["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert refs and len(refs) == len(set(refs))
        for target in panel["targets"]:
            rest = target["expr"]
            for name in sorted(variables, key=len, reverse=True):
                rest = rest.replace(name, "")
            assert "$" not in rest, target["expr"]
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        places.append({(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])})
    assert [one for one in combinations(places, 2) if one[0] & one[1]] == []
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
