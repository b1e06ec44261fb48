"""What a pod, a Service and a Node become in the tables."""

from __future__ import annotations

from typing import Any

import pytest

from nodelib.json_values import Json
from tests.builders.pods import container, pod_json
from tests.builders.services import endpoint, endpoint_slice
from tests.cpu_time import least
from tests.unit.view.world import MADE, ready_node, running, shop_service, shop_slice, waiting
from view.plan import rows


def pod(phase: str = "Running", *boxes: Json, deleted: Any = False, **status: Any) -> Json:
    meta = {"namespace": "shop", "uid": "u", **({"deletionTimestamp": MADE} if deleted else {})}
    return pod_json("a", container(), meta=meta, status={"phase": phase, "containerStatuses": list(boxes), **status})


def box(**state: Any) -> Json:
    return {"name": "main", "ready": False, "restartCount": 2, "state": state}


INIT = {"initContainerStatuses": [box(terminated={"exitCode": 0}), box(waiting={"reason": "PodInitializing"})]}
CRASHED = {"initContainerStatuses": [box(waiting={"reason": "CrashLoopBackOff"})]}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (pod("Running", **READY), ("Running", rows.GOOD)),
        (pod("Running"), ("NotReady", rows.WAITS)),
        (pod("Pending"), ("Pending", rows.WAITS)),
        (pod("Pending", box(waiting={"reason": "ContainerCreating"})), ("ContainerCreating", rows.WAITS)),
        (pod("Pending", box(waiting={"reason": "ImagePullBackOff"})), ("ImagePullBackOff", rows.BAD)),
        (pod("Running", box(waiting={"reason": "CrashLoopBackOff"})), ("CrashLoopBackOff", rows.BAD)),
        (pod("Running", box(terminated={"reason": "OOMKilled", "exitCode": 137})), ("OOMKilled", rows.BAD)),
        (pod("Pending", **INIT), ("Init:1/2", rows.WAITS)),
        (pod("Pending", **CRASHED), ("Init:CrashLoopBackOff", rows.BAD)),
        (pod("Succeeded", box(terminated={"reason": "Completed", "exitCode": 0})), ("Completed", rows.OVER)),
        (pod("Failed", reason="Evicted"), ("Evicted", rows.BAD)),
        (pod("Running", deleted=True, **READY), ("Terminating", rows.WAITS)),
        (pod("Failed", deleted=True), ("Terminating", rows.WAITS)),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_the_state_of_a_pod_is_the_word_that_kubectl_shows(found: Json, state: tuple[str, str]) -> None:
    assert rows.pod_state(found) == state


def test_a_pod_has_its_address_node_and_restarts() -> None:
    row = rows.pod_row(running("web-1", "10.0.1.2", "node1", labels={"app": "web", "pod-template-hash": "7"}))
    assert (row["key"], row["node"], row["addresses"]) == ("pod/shop/web-1", "node1", ["10.0.1.2"])
    assert (row["ready"], row["containers"], row["labels"]) == (1, 1, ["app=web"])
    assert rows.pod_row(waiting("late", "node2"))["addresses"] == []
    assert rows.pod_row(pod("Running", box(waiting={"reason": "CrashLoopBackOff"})))["restarts"] == 2


def test_a_sidecar_that_has_started_does_not_hold_up_the_others() -> None:
    found = pod("Pending", initContainerStatuses=[{**box(running={"startedAt": MADE}), "name": "s", "started": True}])
    found["spec"]["initContainers"] = [{"name": "s", "restartPolicy": "Always"}]
    assert rows.pod_state(found)[0] == "Pending"


def test_the_endpoints_of_a_service_come_from_all_its_slices_the_ready_ones_first() -> None:
    slices = [shop_slice("web", ("web-2", "10.0.2.2", False)), shop_slice("web", ("web-1", "10.0.1.2", True))]
    row = rows.service_row(shop_service("web", "10.9.0.7"), slices)
    assert [(one["address"], one["ready"], one["pod"]) for one in row["endpoints"]] == [
        ("10.0.1.2", True, "pod/shop/web-1"),
        ("10.0.2.2", False, "pod/shop/web-2"),
    ]
    assert (row["state"], row["tone"], row["ports"]) == ("1 of 2 ready", rows.WAITS, ["80/TCP"])


@pytest.mark.parametrize(
    ("spec", "ends", "state"),
    [
        ({}, [], ("no endpoints", rows.BAD)),
        ({}, [endpoint("10.0.0.2", ready=False)], ("no endpoint ready", rows.BAD)),
        ({}, [endpoint("10.0.0.2")], ("1 of 1 ready", rows.GOOD)),
        ({"type": "ExternalName", "externalName": "a.example"}, [], ("name for a.example", rows.GOOD)),
    ],
    ids=["none", "not-ready", "ready", "external"],
)
def test_the_state_of_a_service(spec: Json, ends: list[Json], state: tuple[str, str]) -> None:
    found = shop_service("web", "10.9.0.7")
    found["spec"] |= spec
    row = rows.service_row(found, [endpoint_slice("web", ends, namespace="shop")] if ends else [])
    assert (row["state"], row["tone"]) == state


def test_a_service_of_thousands_has_a_small_row_and_the_true_count() -> None:
    ends = [endpoint(f"10.0.{at // 250}.{at % 250}") for at in range(5000)]
    row = rows.service_row(shop_service("web", "10.9.0.7"), [endpoint_slice("web", ends, namespace="shop")])
    assert row["total"] == 5000 and len(row["endpoints"]) == 64


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, ("Ready", rows.GOOD)),
        ({"spec": {"unschedulable": True}}, ("cordoned", rows.WAITS)),
        ({"status": {"conditions": []}}, ("NotReady", rows.BAD)),
        (
            {"status": {"conditions": [{"type": one, "status": "True"} for one in ("Ready", "DiskPressure")]}},
            ("Ready, DiskPressure", rows.BAD),
        ),
    ],
    ids=["ready", "cordoned", "lost", "pressure"],
)
def test_the_state_of_a_node(change: Json, state: tuple[str, str]) -> None:
    row = rows.node_row({**ready_node("node1", "192.0.2.11", "10.0.1.0/24"), **change}, 3)
    assert (row["state"], row["tone"], row["pods"]) == (*state, 3)


def test_a_text_of_others_is_cut_and_has_no_control_characters() -> None:
    found = running("web-1", "10.0.1.2", "node1", labels={"note": "\x1b[2J\u202e" + "x" * 10_000})
    (label,) = rows.pod_row(found)["labels"]
    assert len(label.encode()) <= 300 and "\x1b" not in label and "\u202e" not in label


def test_addresses_without_number_cost_a_row_next_to_nothing() -> None:
    """Whoever may write EndpointSlices can write some of 100,000 addresses each, with 20,000 ports, again and again."""
    ports = [{"port": one} for one in range(1, 20_000)]
    ends = [{"addresses": [f"10.{n}.{m}.1" for m in range(100)], "conditions": {"ready": n > 5}} for n in range(1000)]
    parts = [{**shop_slice("web"), "ports": ports, "endpoints": ends} for _ in range(10)]
    seconds, row = least(lambda: rows.service_row(shop_service("web", "10.96.0.10"), parts))
    assert seconds < 2.0  # it was 3.5 s
    assert (row["ready"], row["total"], len(row["endpoints"])) == (994_000, 1_000_000, 64)
    assert all(one["ready"] for one in row["endpoints"])


def test_a_change_of_one_slice_does_not_count_all_others_again() -> None:
    """Whoever may write EndpointSlices may write a thousand of them for one Service."""
    ends = [endpoint(f"10.0.{at // 250}.{at % 250}", ready=at > 5) for at in range(1000)]
    parts = [shop_slice("web") | {"endpoints": ends} for _ in range(300)]
    counts = list(map(rows.counted, parts))
    seconds, row = least(lambda: rows.service_row(shop_service("web", "10.96.0.10"), parts, counts))
    assert seconds < 0.15
    assert (row["ready"], row["total"]) == (300 * 994, 300_000) and row["endpoints"][0]["ready"]
