"""Which pod of a list is taken first."""

from __future__ import annotations

from agent.pods.plan.incoming import admission_order
from tests.builders.pods import pod


def test_running_pods_are_admitted_before_new_ones_and_older_before_younger_ones() -> None:
    times = {"a": "2026-01-01T00:00:03Z", "b": "2026-01-01T00:00:02Z", "c": "2026-01-01T00:00:01Z", "d": None}
    pods = [pod(meta={"uid": uid, "creationTimestamp": time}) for uid, time in times.items()]
    assert [one.uid for one in admission_order(pods, {"a", "b"})] == ["b", "a", "d", "c"]
