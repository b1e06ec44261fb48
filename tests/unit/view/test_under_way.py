"""What a container is at during its pod's start, which its node records only when it has ended."""

from __future__ import annotations

from typing import Any

import pytest

from nodelib.json_values import Json
from nodelib.kube.times import parse_rfc3339
from tests.unit.view.world import MADE, running
from view.model.nodes import NodeWork
from view.model.pods import PodRecord, Step
from view.plan.life import life
from view.plan.node_work import document
from view.plan.under_way import under_way

BEGIN = parse_rfc3339(MADE)
PROBE: dict[str, Any] = {"readinessProbe": {"httpGet": {"port": 80}}}
SANDBOX = Step(BEGIN + 0.2, "sandbox", 0.8, "ok", kind="sandbox")
STARTED = Step(BEGIN + 1.9, "start main", 0.4, "ok", kind="start")  # the container by the API: 2 s
MIGRATES = Step(BEGIN + 1.5, "start migrate", 0.25, "ok", kind="start")
PROBED = Step(BEGIN + 2.3, "first probe main", 1.5, "ok", kind="first probe")
READY = Step(BEGIN + 4, "ready", 0.0, "ok", kind="ready")


def starting(ready: bool = False, **container: Any) -> Json:
    found = running("web", "10.0.1.2", "node1")
    found["spec"]["containers"] = [{"name": "main", **container}]
    found["status"]["containerStatuses"][0] |= {"ready": ready, "started": True}
    for one in found["status"]["conditions"][-2:]:
        one["status"] = "False"
    return found


def initializing(state: Json, started: bool = False, **container: Any) -> Json:
    found = starting()
    found["spec"]["initContainers"] = [{"name": "migrate", **container}]
    found["status"]["initContainerStatuses"] = [{"name": "migrate", "state": state, "started": started}]
    found["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "PodInitializing"}}
    return found


RUNS: Json = {"running": {"startedAt": "2026-11-23T20:00:01Z"}}
CASES: list[tuple[str, Json, list[Step], list[tuple[str, float]]]] = [
    ("an init container", initializing(RUNS), [SANDBOX, MIGRATES], [("ended migrate", 1.75)]),
    ("one whose start is not recorded", initializing(RUNS), [SANDBOX], [("ended migrate", 1.0)]),
    ("one that has ended", initializing({"terminated": {"exitCode": 0}}), [SANDBOX, MIGRATES], []),
    ("a sidecar", initializing(RUNS, True, restartPolicy="Always", **PROBE), [SANDBOX, MIGRATES], []),
    (
        "a sidecar that has not started",
        initializing(RUNS, restartPolicy="Always", startupProbe={"exec": {}}),
        [SANDBOX, MIGRATES],
        [("first probe migrate", 1.75)],
    ),
    ("a probe", starting(**PROBE), [SANDBOX, STARTED], [("first probe main", 2.3)]),
    ("a probe of a second run", starting(**PROBE), [PROBED, READY, STARTED], []),
    ("a probe that was good", starting(**PROBE), [SANDBOX, STARTED, PROBED], []),
    ("a container that is ready", starting(True, **PROBE), [SANDBOX, STARTED], []),
    ("no probe", starting(), [SANDBOX, STARTED], []),
    ("no record", starting(**PROBE), [], []),
]


@pytest.mark.parametrize(("pod", "steps", "expected"), [one[1:] for one in CASES], ids=[one[0] for one in CASES])
def test_what_is_under_way(pod: Json, steps: list[Step], expected: list[tuple[str, float]]) -> None:
    found = under_way(pod, steps)
    assert [(one.name, round(one.at - BEGIN, 3)) for one in found] == expected
    assert all(one.seconds is None for one in found)


@pytest.mark.parametrize(
    "nonsense",
    [{}, {"spec": [], "status": 5}, {"spec": {"containers": [5]}, "status": {"containerStatuses": [{"state": 7}]}}],
)
def test_nonsense_has_nothing_under_way(nonsense: Any) -> None:
    assert under_way({"metadata": {"name": "a"}, **nonsense}, [SANDBOX]) == ()


def test_it_is_a_bar_of_the_start() -> None:
    found = life(initializing(RUNS), [SANDBOX, MIGRATES], ())
    newest = found["bars"][-1]
    assert (newest["name"], newest["end"], newest["tone"]) == ("migrate runs to its end", None, "waits")
    found = life(starting(**PROBE), [SANDBOX, STARTED], ())
    assert found["bars"][-1]["name"] == "main waits for its first good probe"


def test_it_is_in_the_lane_of_its_pod() -> None:
    record = PodRecord(("shop", "web"), (SANDBOX, STARTED))
    pods = {("shop", "web"): starting(**PROBE)}
    (lane,) = document(NodeWork((record,)), pods)["lanes"]
    assert [(one["kind"], one["end"] is None) for one in lane["bars"]][-1] == ("first probe", True)
    (lane,) = document(NodeWork((record,)))["lanes"]
    assert [one["kind"] for one in lane["bars"]] == ["sandbox", "start"], "its object is not known"
