"""`why` where one namespace has very many objects of a kind, which whoever may create them does: linear work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from cli.why import judge
from cli.why.model import Explained, Facts
from nodelib.json_values import Json

MANY = 4000
_SECONDS = 15.0  # of CPU; each takes one or two, and from half a minute to hours when objects are compared with others
_SHORT = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def meta(name: str, **rest: Any) -> Json:
    return {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", **rest}


def pods(count: int, said: str = "", labels: Mapping[str, str] | None = None, **spec: Any) -> list[Json]:
    conditions = [{**_SHORT, "message": said}] if said else []
    status = {"phase": "Pending", "conditions": conditions}
    return [{"metadata": meta(f"p{one}", labels=labels or {}), "spec": spec, "status": status} for one in range(count)]


def claims(count: int) -> list[Json]:
    spec, status = {"storageClassName": "late"}, {"phase": "Pending"}
    return [{"metadata": meta(f"c{one}"), "spec": spec, "status": status} for one in range(count)]


def jobs(count: int) -> list[Json]:
    own = [{"kind": "CronJob", "name": "nightly", "uid": "u", "controller": True}]
    return [{"metadata": meta(f"j{n}", ownerReferences=own), "spec": {"suspend": True}} for n in range(count)]


def services(count: int, selector: Callable[[int], Mapping[str, str]], **spec: Any) -> list[Json]:
    own = {"clusterIP": "10.0.0.1", "ports": [{"port": 80}], **spec}
    return [{"metadata": meta(f"s{n}"), "spec": {**own, "selector": selector(n)}, "status": {}} for n in range(count)]


def deployments(count: int) -> list[Json]:
    template = {"metadata": {"labels": {"app": "other", "a": "1"}}}
    return [{"metadata": meta(f"d{n}"), "spec": {"replicas": 0, "template": template}} for n in range(count)]


CLASS = {"metadata": {"name": "late"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}
VOLUMES = [{"name": f"v{one}", "persistentVolumeClaim": {"claimName": f"c{one}"}} for one in range(500)]
TAKEN = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
PORTS = [{"name": "web", "ports": [{"hostPort": one, "containerPort": one} for one in range(1, 400)]}]
LABELS = {f"l{one}": "x" * 63 for one in range(1000)}
ELSEWHERE = "x.ns.svc.cluster.local"
NONE: dict[str, list[Json]] = {"pod": [], "endpointslice": []}


@pytest.mark.parametrize(
    "lists",
    [
        pytest.param({"pod": pods(MANY), "pvc": claims(MANY), "storageclass": [CLASS]}, id="claims"),
        pytest.param({"pod": pods(100, volumes=VOLUMES), "pvc": claims(500), "storageclass": [CLASS]}, id="many each"),
        pytest.param({"job": jobs(MANY)}, id="jobs"),
        pytest.param({"pod": pods(MANY, TAKEN, containers=PORTS[:1]), "node": []}, id="host ports"),
        pytest.param(
            {**NONE, "service": services(MANY, lambda n: {"app": f"{n}"}), "deployment": deployments(MANY)}, id="none"
        ),
        pytest.param(
            {**NONE, "service": services(MANY, lambda n: {"app": f"{n}"}), "pod": pods(MANY, labels={"app": "x"})},
            id="one letter off",
        ),
        pytest.param(
            {**NONE, "service": services(MANY, lambda n: {"app": "x"}), "pod": pods(MANY, labels={"app": "x"})},
            id="all of them",
        ),
        pytest.param(
            {
                **NONE,
                "service": services(3, lambda n: {**LABELS, "l0": "y"}),
                "pod": [{**pods(1)[0], "metadata": meta(f"p{n}", labels={**LABELS, "l1": f"{n}"})} for n in range(200)],
            },
            id="long labels",
        ),
        pytest.param(
            {**NONE, "service": services(MANY, lambda n: {}, type="ExternalName", externalName=ELSEWHERE)},
            id="names",
        ),
    ],
)
def test_why_of_a_namespace_with_very_many(lists: Mapping[str, Iterable[Json]]) -> None:
    began = time.process_time()
    found = judge.everything({}, Facts({kind: tuple(every) for kind, every in lists.items()}), ["node1"])
    assert time.process_time() - began < _SECONDS
    assert len(found) >= max(len(tuple(every)) for every in lists.values())


def one_of(found: list[Explained], kind: str, name: str) -> Explained:
    return next(one for one in found if (one.kind, one.found.name) == (kind, name))


def test_a_pod_names_a_few_of_the_claims_that_it_waits_for() -> None:
    lists = {"pod": tuple(pods(1, volumes=VOLUMES)), "pvc": tuple(claims(500)), "storageclass": (CLASS,)}
    waits = one_of(judge.everything({}, Facts(lists), ["node1"]), "pod", "p0").found.waits
    assert [one.on for one in waits][:2] == ["scheduler", "claim c0"] and 10 < len(waits) < 30


def test_a_pod_names_a_few_of_its_ports() -> None:
    (wait,) = judge.everything({}, Facts({"pod": tuple(pods(1, TAKEN, containers=PORTS))}), [])[0].found.waits
    assert "hostPort 1, 2, 3" in wait.action and len(wait.action) < 300


def test_a_job_is_past_once_a_later_one_has_succeeded() -> None:
    done = {"conditions": [{"type": "Complete", "status": "True"}]}
    later = {**jobs(1)[0], "metadata": {**jobs(2)[1]["metadata"], "creationTimestamp": "2026-01-02T00:00:00Z"}}
    before, alone = ({"job": (jobs(1)[0], {**later, "status": status})} for status in (done, {}))
    assert not one_of(judge.everything({}, Facts(before), []), "job", "j0").listed
    assert one_of(judge.everything({}, Facts(alone), []), "job", "j0").listed
