"""The waterfall of a pod's start, from the node's record and from the API alone."""

from __future__ import annotations

from typing import Any

from nodelib.json_values import Json
from nodelib.kube.times import parse_rfc3339
from tests.unit.view.world import MADE, running, waiting
from view.model.pods import Step
from view.plan.life import life

BEGIN = parse_rfc3339(MADE)


def event(reason: str, at: int, message: str = "") -> Json:
    return {
        "metadata": {"name": reason, "creationTimestamp": MADE},
        "reason": reason,
        "message": message,
        "firstTimestamp": f"2026-11-23T20:00:0{at}Z",
        "involvedObject": {"fieldPath": "spec.containers{main}"},
    }


def bars(found: Json) -> list[tuple[Any, ...]]:
    """Name, begin and end after the creation, and tone."""
    return [
        (one["name"], one["begin"] - BEGIN, one["end"] and one["end"] - BEGIN, one["tone"]) for one in found["bars"]
    ]


def test_the_api_alone_gives_the_wait_for_a_node_the_pull_and_the_containers() -> None:
    pulls = [event("Pulled", 2, "Successfully pulled"), event("Pulling", 1)]
    found = life(running("web", "10.0.1.2", "node1"), (), pulls)
    assert bars(found) == [
        ("wait for a node", 0, 0, "good"),
        ("volumes, sandbox and network", 0, 1, "good"),
        ("pull the image of main", 1, 2, "good"),
        ("container main, until ready", 2, 3, "good"),
    ]
    assert not found["exact"] and found["begin"] == BEGIN
    assert [(one["name"], one["at"] - BEGIN) for one in found["marks"]] == [
        ("Created", 0),
        ("Scheduled", 0),
        ("Sandbox and network ready", 1),
        ("Initialized", 1),
        ("Containers ready", 3),
        ("Ready", 3),
    ]


def test_what_goes_on_has_no_end() -> None:
    found = life(waiting("late", "node2"), (), [event("Pulling", 1)])
    assert bars(found) == [
        ("wait for a node", 0, 0, "good"),
        ("volumes, sandbox and network", 0, None, "waits"),
        ("container main waits", 0, None, "waits"),
        ("pull the image of main", 1, None, "waits"),
    ]
    assert [one["name"] for one in found["marks"] if not one["at"]][-1] == "Ready"


def test_a_pull_that_failed_is_red_and_says_why() -> None:
    pulls = [event("Pulling", 1), event("Failed", 2, "no such host")]
    (bar,) = [one for one in life(waiting("late", "node2"), (), pulls)["bars"] if one["name"].startswith("pull")]
    assert (bar["tone"], bar["note"]) == ("bad", "no such host")


def test_the_record_of_the_node_comes_first_and_later_steps_are_left_out() -> None:
    steps = [
        Step(BEGIN + 0.01, "volumes", 0.02, "ok"),
        Step(BEGIN + 0.03, "sandbox", 0.1, "ok"),
        Step(BEGIN + 0.05, "network", 0.04, "ok", part=True),
        Step(BEGIN + 0.2, "start container main", 0.05, "exec format error"),
        Step(BEGIN + 3600, "start container main", 0.05, "ok"),
    ]
    found = life(running("web", "10.0.1.2", "node1"), steps, ())
    assert found["exact"] and found["left_out"] == 1
    assert [(one["name"], one["tone"], one["part"]) for one in found["bars"]] == [
        ("volumes", "good", False),
        ("sandbox", "good", False),
        ("network", "good", True),
        ("start container main", "bad", False),
    ]
    assert found["bars"][3]["note"] == "exec format error"


def test_the_steps_that_took_longest_are_named_first_and_parts_are_not_among_them() -> None:
    steps = [
        Step(BEGIN, "sandbox", 1.3, "ok", kind="sandbox"),
        Step(BEGIN, "network", 1.2, "ok", part=True, kind="network"),
        Step(BEGIN + 2, "ended migrate", 12.7, "ok", kind="ended"),
        Step(BEGIN + 15, "image web", 0.02, "ok", kind="image"),
        Step(BEGIN + 16, "first probe web", 2.0, "ok", kind="first probe"),
    ]
    found = life(waiting("late", "node2"), steps, ())
    assert found["slowest"] == ["migrate runs to its end", "web waits for its first good probe", "sandbox"]
    assert [one["name"] for one in found["bars"]][2] == "migrate runs to its end"
    quick = [Step(BEGIN, "sandbox", 0.05, "ok"), Step(BEGIN, "image web", 0.02, "ok")]
    assert life(waiting("late", "node2"), quick, ())["slowest"] == [], "nothing took long"
    assert life(waiting("late", "node2"), (), ())["slowest"] == [], "whole seconds tell nothing"


def test_a_record_that_begins_after_the_start_is_not_taken_for_it() -> None:
    """As that of an agent that was started again: what it does then is no part of the pod's start."""
    found = life(running("web", "10.0.1.2", "node1"), [Step(BEGIN + 600, "prepare", 1.4, "ok")], ())
    assert not found["exact"] and "started later" in found["source"]
    assert found["bars"][0]["name"] == "wait for a node"


def test_nor_is_one_of_a_pod_that_never_became_ready() -> None:
    pod = running("web", "10.0.1.2", "node1")
    for one in pod["status"]["conditions"][-2:]:
        one["status"] = "False"
    found = life(pod, [Step(BEGIN + 600, "prepare", 1.4, "ok")], ())
    assert not found["exact"] and "started later" in found["source"] and found["slowest"] == []
    assert life(pod, [Step(BEGIN + 0.5, "sandbox", 0.5, "ok")], ())["exact"]


def test_a_pod_with_nonsense_for_times_still_has_a_waterfall() -> None:
    pod = running("web", "10.0.1.2", "node1")
    pod["metadata"]["creationTimestamp"] = "yesterday"
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": "soon"}]
    assert life(pod, (), [{"metadata": {"name": "a"}, "reason": "Pulling"}])["begin"] == 0.0


def test_the_waterfall_is_bounded() -> None:
    steps = [Step(BEGIN + at / 100, "x" * 5000, 0.01, "ok") for at in range(1000)]
    found = life(waiting("late", "node2"), steps, ())
    assert len(found["bars"]) == 60 and found["left_out"] == 940
    assert all(len(one["name"].encode()) <= 400 for one in found["bars"])
