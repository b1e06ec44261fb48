"""The newest burst of starts is told from earlier ones, and averages are of what went well."""

from __future__ import annotations

from view.model.nodes import DiskHolders, Image, ImageDisk, NodeWork, PodDisk, Threshold
from view.model.pods import PodRecord, Pull, Step
from view.plan.node_work import averages, document


def started(name: str, at: float, ready: float | None = None) -> PodRecord:
    """A pod whose start took a second for its sandbox, half of it for the network."""
    steps = [
        Step(at, "prepare", 0.25, "ok", kind="prepare"),
        Step(at + 1, "sandbox", 1.0, "ok", kind="sandbox"),
        Step(at + 1, "network", 0.5, "ok", part=True, kind="network"),
        Step(at + 2, "start web", 0.5, "ok", kind="start"),
    ]
    if ready is not None:
        steps += [Step(ready, "ready", 0.0, "ok", kind="ready"), Step(ready + 50, "stop web", 1.0, "ok", kind="stop")]
    return PodRecord(("shop", name), tuple(steps))


def test_the_newest_burst_is_what_began_within_ten_seconds_of_each_other() -> None:
    pods = [started("old", 100, 103), started("a", 200, 203), started("b", 208, 212), started("c", 217)]
    found = document(NodeWork(tuple(pods)))
    assert [one["pod"] for one in found["lanes"]] == ["pod/shop/a", "pod/shop/b", "pod/shop/c"]
    assert [one["ready"] for one in found["lanes"]] == [203, 212, None]
    assert (found["known"], found["left_out"]) == (4, 0)


def test_a_lane_has_the_steps_until_the_pod_was_ready_without_their_parts() -> None:
    (lane,) = document(NodeWork((started("a", 200, 203),)))["lanes"]
    assert [one["name"] for one in lane["bars"]] == ["prepare", "sandbox", "start web"]
    assert lane["bars"][1] == {"kind": "sandbox", "name": "sandbox", "begin": 201, "end": 202, "tone": "good"}


def test_what_goes_on_and_what_failed_is_told_apart() -> None:
    steps = (
        Step(1, "start web", 0.5, "exit code 1", kind="start"),
        Step(2, "start web", None, "ok", kind="start"),
    )
    (lane,) = document(NodeWork((PodRecord(("shop", "a"), steps),)))["lanes"]
    assert [(one["tone"], one["end"]) for one in lane["bars"]] == [("bad", 1.5), ("waits", None)]


def test_averages_are_of_steps_that_ended_well() -> None:
    bad = PodRecord(("shop", "b"), (Step(1, "sandbox", 9.0, "no", kind="sandbox"), Step(1, "x", None, "ok", kind="x")))
    found = averages([started("a", 1, 4), started("c", 1, 4), bad])
    assert found["sandbox"] == {"count": 2, "seconds": 1.0}
    assert found["network"] == {"count": 2, "seconds": 0.5}
    assert "x" not in found


def test_a_pod_without_a_record_of_its_start_is_no_lane() -> None:
    only_ended = PodRecord(("shop", "a"), (Step(1, "stop web", 0.5, "ok", kind="stop"),))
    assert document(NodeWork((only_ended,)))["lanes"] == []


def test_what_pods_hold_is_told_beside_the_size_of_their_disk() -> None:
    holders = DiskHolders(5, (PodDisk(("shop", "a"), 5, ()),))
    nodefs = Threshold("nodefs.available", 30, 100, 10, 0.0, 0.0)
    assert document(NodeWork(holders=holders, thresholds=(nodefs,)))["holders"]["disk"] == 100
    assert document(NodeWork(holders=holders))["holders"]["disk"] is None


def test_thousands_of_pods_and_images_stay_a_small_document() -> None:
    images = tuple(Image("x" * 5000, size, "") for size in range(1000))
    pods = tuple(started(f"p{at}", 100 + at / 100) for at in range(1000))
    work = NodeWork(pods, ImageDisk(10, 5, 85, 80, images, ("words",)))
    found = document(work)
    assert (len(found["lanes"]), found["left_out"]) == (120, 880)
    disk = found["disk"]
    assert (len(disk["images"]), disk["images_left_out"], disk["images"][0]["size"]) == (40, 960, 999)
    assert all(len(one["name"]) <= 250 for one in disk["images"])


def test_who_holds_the_disk_stands_beside_all_that_is_in_use() -> None:
    pods = tuple(PodDisk(("shop", f"p{at}"), 50 - at, (("volume data", 50 - at), ("log", 0))) for at in range(50))
    level = Threshold("nodefs.available", 700, 1000, 100, 0.0, 0.0)
    found = document(NodeWork(holders=DiskHolders(2000, pods, 5), thresholds=(level,)))["holders"]
    assert (found["used"], found["disk_used"], found["images"], found["left_out"]) == (2000, 300, None, 35)
    assert found["pods"][0] == {"pod": "pod/shop/p0", "used": 50, "parts": [{"name": "volume data", "used": 50}]}
    few = (PodDisk(("shop", "a"), 9000, ()), PodDisk(("shop", "b"), 80, ()), PodDisk(("shop", "c"), 0, ()))
    found = document(NodeWork(holders=DiskHolders(9080, few)))["holders"]
    assert ([one["pod"] for one in found["pods"]], found["left_out"], found["left_out_used"]) == (["pod/shop/a"], 2, 80)
    assert document(NodeWork())["holders"]["unknown"] == "the node does not say"


def test_pulls_are_told_with_their_pod() -> None:
    pod = PodRecord(("shop", "a"), (), (Pull("image of container web", "3 of 9 MiB", 1 / 3, 5.0),))
    (pull,) = document(NodeWork((pod,)))["pulls"]
    assert (pull["pod"], pull["text"], pull["share"]) == ("pod/shop/a", "3 of 9 MiB", 1 / 3)
