"""A node's work as it is drawn: the newest burst of starts as lanes, and how long each kind of step takes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import mean

from nodelib.json_values import Json
from nodelib.text import one_line
from view.model.nodes import Image, NodeWork
from view.model.objects import POD, Key, row_key
from view.model.pods import PodRecord, Step
from view.plan.life import BAD, GOOD, WAITS
from view.plan.under_way import under_way

_APART = 10.0  # seconds between two starts of one burst, at most
_LANES = 120
_BARS = 24  # of one lane
_KINDS = 40  # of steps
_IMAGES = 40
_HOLDERS, _PARTS = 20, 4  # pods that hold the disk, and parts of one
_LITTLE = 100  # who holds less than such a part of what the first one holds is not listed
_NODE_FS = "nodefs.available"
_TEXT = 200  # bytes
_READY = "ready"
# Which steps a lane is made of; the others are parts of these, or belong to a pod's end.
_SHOWN = ("admit", "prepare", "image", "pull", "sandbox", "start", "postStart", "ended", "first probe")


@dataclass(frozen=True, slots=True)
class _Lane:
    key: tuple[str, str]
    begin: float
    ready: float | None
    steps: tuple[Step, ...]


def document(work: NodeWork, pods: Mapping[Key, Json] | None = None) -> Json:
    """What is sent to the browser. `pods`: the objects, which tell what their containers are at."""
    objects = pods or {}
    every = sorted(
        (one for pod in work.pods if (one := _lane(pod, objects.get(pod.key))) is not None), key=lambda one: one.begin
    )
    burst = _newest(every)
    shown = burst[:_LANES]
    disk = work.disk
    return {
        "lanes": [_drawn(one) for one in shown],
        "left_out": len(burst) - len(shown),
        "known": len(every),
        "averages": [{"kind": kind, **one} for kind, one in list(averages(work.pods).items())[:_KINDS]],
        "pulls": [
            {"pod": row_key(POD, pod.key), **asdict(one), "on": _cut(one.on), "text": _cut(one.text)}
            for pod in work.pods
            for one in pod.pulls
        ][:_IMAGES],
        "disk": None if disk is None else {**asdict(disk), **_images(work)},
        "holders": _holders(work),
        "thresholds": [asdict(one) for one in work.thresholds],
        "evicted": [asdict(one) for one in work.evicted],
        "daemons": [asdict(one) for one in work.daemons[:_KINDS]],
        "silent": list(work.silent),
    }


def averages(pods: Iterable[PodRecord]) -> Mapping[str, Json]:
    """By kind of step: how often it was done and well, and how long it took on average."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for pod in pods:
        for one in pod.steps:
            if one.kind and one.seconds is not None and one.outcome in ("ok", ""):
                found[one.kind].append(one.seconds)
    return {kind: {"count": len(every), "seconds": mean(every)} for kind, every in found.items()}


def _lane(pod: PodRecord, obj: Json | None) -> _Lane | None:
    """The pod's start; None for a pod of which there is no record of one."""
    ready = next((one.at for one in sorted(pod.steps, key=lambda one: one.at) if one.kind == _READY), None)
    steps = [one for one in pod.steps if not one.part and one.kind in _SHOWN and (ready is None or one.at <= ready)]
    if not steps:
        return None
    steps += under_way(obj, pod.steps) if obj is not None else ()
    return _Lane(pod.key, min(one.at for one in steps), ready, tuple(sorted(steps, key=lambda one: one.at)))


def _newest(every: list[_Lane]) -> list[_Lane]:
    """The last starts, back to the first pause between two of them."""
    found = every[-1:]
    for one in reversed(every[:-1]):
        if found[0].begin - one.begin > _APART:
            break
        found.insert(0, one)
    return found


def _drawn(lane: _Lane) -> Json:
    return {
        "pod": row_key(POD, lane.key),
        "begin": lane.begin,
        "ready": lane.ready,
        "bars": [_bar(one) for one in lane.steps[:_BARS]],
    }


def _bar(one: Step) -> Json:
    failed = one.seconds is not None and one.outcome not in ("ok", "")
    return {
        "kind": one.kind,
        "name": _cut(one.name),
        "begin": one.at,
        "end": None if one.seconds is None else one.at + one.seconds,
        "tone": WAITS if one.seconds is None else BAD if failed else GOOD,
    }


def _images(work: NodeWork) -> Json:
    images = work.disk.images if work.disk is not None else ()
    largest = sorted(images, key=lambda one: -one.size)
    return {
        "images": list(_named(largest[:_IMAGES])),
        "images_left_out": max(0, len(images) - _IMAGES),
        "images_size": sum(one.size for one in images),
    }


def _holders(work: NodeWork) -> Json:
    """Beside the sum of all that is in use on the disk, as far as it is known."""
    found = work.holders
    shown = [one for one in found.pods[:_HOLDERS] if one.used and one.used >= found.pods[0].used / _LITTLE]
    small = sum(one.used for one in found.pods[len(shown) :])
    whole = next((one for one in work.thresholds if one.signal == _NODE_FS and one.capacity), None)
    return {
        "used": found.used,
        "disk": whole.capacity if whole is not None else None,
        "disk_used": whole.capacity - whole.available if whole is not None else None,
        "images": sum(one.size for one in work.disk.images) if work.disk is not None else None,
        "pods": [
            {
                "pod": row_key(POD, one.key),
                "used": one.used,
                "parts": [{"name": _cut(name), "used": used} for name, used in one.parts[:_PARTS] if used],
            }
            for one in shown
        ],
        "left_out": found.left_out + len(found.pods) - len(shown),
        "left_out_used": small,
        "unknown": _cut(found.unknown),
    }


def _named(images: Iterable[Image]) -> Iterator[Json]:
    for one in images:
        yield {"name": _cut(one.name), "size": one.size, "held": _cut(one.held)}


def _cut(text: str) -> str:
    return one_line(text, _TEXT)
