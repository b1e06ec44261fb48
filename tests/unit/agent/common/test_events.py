"""Which Events are counted, merged or dropped: the cases of client-go's events_cache_test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.common.plan.event_series import Written, count_patch, document, event, is_counted, merged, spent
from tests.builders.pods import container, pod

NOW = 1_767_225_600.0
POD = pod(container("app"), initContainers=[container("setup")]).raw
FAILED = event(POD, "Warning", "Failed", "no such image", "app", NOW)


def test_a_container_is_named_by_its_place_in_the_spec() -> None:
    assert FAILED.target["fieldPath"] == "spec.containers{app}"
    assert event(POD, "Normal", "Started", "x", "setup", NOW).target["fieldPath"] == "spec.initContainers{setup}"
    assert (FAILED.target["kind"], FAILED.target["namespace"], FAILED.target["name"]) == ("Pod", "shop", "web")


def test_a_reference_is_taken_as_it_is_and_a_long_message_is_cut() -> None:
    made = event({"kind": "Node", "name": "n1"}, "Normal", "Starting", "x" * 2000, "", NOW)
    assert made.target == {"kind": "Node", "name": "n1"}
    assert len(made.message) == 1024 and made.message.endswith("...")


@pytest.mark.parametrize(("later", "counted"), [(599, True), (601, False)])
def test_an_equal_event_is_counted_for_ten_minutes(later: float, counted: bool) -> None:
    assert is_counted(Written("shop", "web.1", 2, NOW), NOW + later) is counted
    assert not is_counted(None, NOW)


def test_the_tenth_message_makes_them_one() -> None:
    similar = None
    keys = set()
    for number in range(15):
        one, similar = merged(replace(FAILED, message=f"try {number}", at=NOW + number), similar)
        keys.add(one.key)
        assert one.combined is (number >= 9)
    assert len(keys) == 10
    alone, _ = merged(replace(FAILED, message="much later", at=NOW + 2000), similar)
    assert not alone.combined


def test_an_object_gets_25_at_once_and_one_every_five_minutes() -> None:
    bucket, given = None, 0
    for _ in range(40):
        bucket, allowed = spent(bucket, NOW)
        given += allowed
    assert given == 25
    assert not spent(bucket, NOW + 299)[1]
    assert spent(bucket, NOW + 301)[1]


def test_what_is_written() -> None:
    body = document(FAILED, 7, "kubelet", "n1")
    assert body["metadata"]["namespace"] == "shop" and body["metadata"]["name"].startswith("web.")
    assert (body["count"], body["type"], body["source"]) == (1, "Warning", {"component": "kubelet", "host": "n1"})
    patch = count_patch(Written("shop", "web.1", 4, NOW), FAILED)
    assert (patch["count"], patch["lastTimestamp"]) == (5, "2026-01-01T00:00:00Z")
