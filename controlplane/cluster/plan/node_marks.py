"""Labels and taints of nodes: what a kubelet registers with, and what is mended in a Node that exists. Pure."""

from __future__ import annotations

import json
from typing import Any

from agent.config import labels
from controlplane.config.model import Member
from nodelib.json_values import Json

OURS = "nodewright.io/given"  # annotation: names of the labels and taints from `up`, so that it removes no others
_Key = tuple[str, str]


def registration_flags(member: Member) -> tuple[str, ...]:
    """Flags of a kubelet: all taints, so that no pod comes before them, and the labels that it may set itself."""
    own = {key: value for key, value in sorted(member.labels.items()) if not any(labels.problems({key: value}))}
    flags = []
    if own:
        flags.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in own.items()))
    if member.taints:
        taints = (f"{one.key}={one.value}:{one.effect}" for one in member.taints)
        flags.append("--register-with-taints=" + ",".join(taints))
    return tuple(flags)


def marks_patch(node: Json, member: Member) -> Json:
    """A merge patch of a Node: labels and taints that `up` was asked for, and none of those that it was asked for once.

    Whatever others put there stays. {} when nothing differs.
    """
    annotations = node["metadata"].get("annotations") or {}
    before_labels, before_taints = _recorded(annotations.get(OURS, ""))
    metadata: Json = {}
    if changed := _labels(node["metadata"].get("labels") or {}, member, before_labels):
        metadata["labels"] = changed
    record = _record(member)
    if annotations.get(OURS, "") != record:
        metadata["annotations"] = {OURS: record or None}
    present: list[Json] = list(node.get("spec", {}).get("taints") or [])
    wanted = _taints(present, member, before_taints)
    if wanted == present:
        return {"metadata": metadata} if metadata else {}
    # Taints are one list: what somebody else changes in it meanwhile must not be lost.
    metadata["resourceVersion"] = node["metadata"]["resourceVersion"]
    return {"metadata": metadata, "spec": {"taints": wanted or None}}


def _labels(present: Json, member: Member, before: set[str]) -> Json:
    changed: Json = {key: value for key, value in member.labels.items() if present.get(key) != value}
    return changed | {key: None for key in sorted(before) if key in present and key not in member.labels}


def _taints(present: list[Json], member: Member, before: set[_Key]) -> list[Json]:
    """The taints as they should be, in the order in which they are."""
    ours = {(one.key, one.effect): one.to_api() for one in member.taints}
    found = []
    for one in present:
        key = _key(one)
        wanted = ours.pop(key, None)
        if wanted is not None:
            found.append(one if str(one.get("value") or "") == wanted.get("value", "") else wanted)
        elif key not in before:
            found.append(one)
    return [*found, *ours.values()]


def _key(taint: Json) -> _Key:
    return str(taint.get("key", "")), str(taint.get("effect", ""))


def _record(member: Member) -> str:
    if not member.labels and not member.taints:
        return ""
    return json.dumps([sorted(member.labels), sorted([one.key, one.effect] for one in member.taints)])


def _recorded(text: str) -> tuple[set[str], set[_Key]]:
    try:
        found: Any = json.loads(text or "[[], []]")
        keys, taints = found
        return set(map(str, keys)), {(str(key), str(effect)) for key, effect in taints}
    except (ValueError, TypeError):
        return set(), set()  # somebody else's
