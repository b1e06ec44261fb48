"""The order of admission, pods with an invalid spec, and orphans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.common.model import labels
from agent.common.model.pods import ContainerState, ObservedPod, Pod, RunState, SandboxState
from agent.pods.plan.incoming import admission_order, orphan_pod, spec_problem, without_spec
from agent.pods.plan.startup_latency import start_times
from agent.pods.plan.termination import deadline
from nodelib.json_values import Json
from tests.builders.pods import container, pod


def test_running_pods_are_admitted_before_new_ones_and_older_before_younger_ones() -> None:
    times = {"a": "2026-01-01T00:00:03Z", "b": "2026-01-01T00:00:02Z", "c": "2026-01-01T00:00:01Z", "d": None}
    pods = [pod(meta={"uid": uid, "creationTimestamp": time}) for uid, time in times.items()]
    assert [one.uid for one in admission_order(pods, {"a", "b"})] == ["b", "a", "d", "c"]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": [{"name": "a", "resources": {"requests": {"cpu": "many"}}}]}, id="quantity"),
        pytest.param({"containers": [{"name": "a", "resources": {"limits": {"x/y": "1e3000000"}}}]}, id="far limit"),
        pytest.param({"containers": "none"}, id="no-list"),
        pytest.param({"containers": [{"name": "a", "resources": []}, "b"]}, id="no-object"),
    ],
)
def test_a_pod_that_cannot_be_planned_keeps_only_the_names_of_its_containers(spec: Json) -> None:
    broken = Pod({**pod().raw, "spec": {"nodeName": "n1", **spec}})
    assert spec_problem(broken)
    stripped = without_spec(broken)
    assert spec_problem(stripped) == ""
    names = [one["name"] for one in spec["containers"] if isinstance(one, dict)]
    assert [one["name"] for one in stripped.spec["containers"]] == names
    assert (stripped.uid, stripped.full_name) == (broken.uid, broken.full_name)


def test_a_pod_of_the_api_server_has_no_spec_problem() -> None:
    assert spec_problem(pod()) == ""


def test_a_pod_has_two_thousand_containers_at_most() -> None:
    """The runtime lists the containers of a pod that have exited in one message of 16 MiB."""
    most = [container(f"c{number}") for number in range(2000)]
    assert spec_problem(pod(*most)) == ""
    assert spec_problem(pod(*most, initContainers=[container("first")])) == "it has more than 2000 containers"


def test_an_orphan_is_made_from_its_labels_with_its_own_grace() -> None:
    named = {labels.POD_NAME: "web", labels.POD_NAMESPACE: "shop"}
    sandbox = SandboxState("s1", "u1", "shop", "web", 0, True, 1, labels=named, network_mode="NODE")
    main = ContainerState("c1", "s1", "u1", "main", 0, RunState.RUNNING, 1, labels=named)
    main = replace(main, annotations={labels.TERMINATION_GRACE: "7"})
    found = orphan_pod(ObservedPod("u1", (sandbox,), (main,)))
    assert found is not None and (found.uid, found.full_name, found.source) == ("u1", "shop/web", "runtime")
    assert found.host_network and found.spec["terminationGracePeriodSeconds"] == 7
    without_sandbox = orphan_pod(ObservedPod("u1", (), (main,)))
    assert without_sandbox is not None and without_sandbox.full_name == "shop/web"
    assert orphan_pod(ObservedPod("u1")) is None


@pytest.mark.parametrize("time", ["0000-01-01T00:00:00Z", "soon", 5], ids=["year 0", "no time", "no text"])
def test_a_status_of_others_is_no_problem_of_the_spec(time: object) -> None:
    """Go takes the year 0, so an API server does, too. Such a pod failed, or ran on unwatched by the next agent."""
    one = pod(activeDeadlineSeconds=10)
    ended = {"terminated": {"startedAt": time, "finishedAt": time}}
    forged = {"startTime": time, "initContainerStatuses": [{"name": "first", "state": ended}]}
    other = Pod({**one.raw, "status": forged, "spec": {**one.spec, "initContainers": [container("first")]}})
    assert spec_problem(other) == ""
    assert deadline(other) is None
    total, without_inits = start_times(other, 5e9, [])
    assert total == without_inits
