"""Mirror pods: the objects by which the API shows static pods.

Follows pkg/kubelet/pod/mirror_client.go and tryReconcileMirrorPods of pkg/kubelet/kubelet.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from agent.common.model.labels import CONFIG_HASH, CONFIG_MIRROR
from agent.common.model.pods import Json, Pod


@dataclass(frozen=True, slots=True)
class CreateMirror:
    pod: Pod


@dataclass(frozen=True, slots=True)
class DeleteMirror:
    mirror: Pod
    why: str


MirrorStep = CreateMirror | DeleteMirror


def is_mirror(raw: Json) -> bool:
    return CONFIG_MIRROR in (raw["metadata"].get("annotations") or {})


def mirrors(mirror: Pod, pod: Pod) -> bool:
    """`mirror` shows this very pod, not an earlier manifest of its name."""
    return _note(mirror, CONFIG_MIRROR) == _note(pod, CONFIG_HASH) != ""


def steps(
    wanted: Mapping[str, Pod], shown: Mapping[str, Pod], dying: Collection[str], *, all_known: bool
) -> Iterator[MirrorStep]:
    """What makes the API show exactly `wanted`, all by full name.

    `dying`: names of which an old pod still ends; its mirror shows that until it has. `all_known`:
    every source of static pods has spoken; no mirror is taken for an orphan before.
    """
    for name, mirror in shown.items():
        pod = wanted.get(name)
        if pod is None:
            if all_known and name not in dying:
                yield DeleteMirror(mirror, "its static pod is gone")
        elif mirror.is_deleted:
            yield DeleteMirror(mirror, "it was deleted; the static pod runs on")
        elif not mirrors(mirror, pod) and name not in dying:
            yield DeleteMirror(mirror, "the manifest has changed")
    for name, pod in wanted.items():
        if name not in shown:
            yield CreateMirror(pod)


def mirror_object(pod: Pod, node_uid: str) -> Json:
    """What is created. NodeRestriction wants the Node as the only owner, and no reference to other objects."""
    node = str(pod.spec["nodeName"])
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
    meta = {name: value for name, value in pod.meta.items() if name != "uid"}
    notes = {**meta["annotations"], CONFIG_MIRROR: _note(pod, CONFIG_HASH)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, "annotations": notes, "ownerReferences": [owner]},
        "spec": pod.spec,
    }


def resumed_status(status: Json, shown: Json) -> Json:
    """What an agent that has started anew goes on from: what the API shows, as every other pod's status does.

    `status` is what it has computed since; a mirror that shows nothing yet changes nothing of that.
    """
    if not shown.get("conditions"):
        return status
    own = ("phase", "reason", "message")
    kept = {name: value for name, value in shown.items() if name not in own}
    return {**kept, **{name: status[name] for name in own if name in status}}


def _note(pod: Pod, name: str) -> str:
    return str((pod.meta.get("annotations") or {}).get(name, ""))
