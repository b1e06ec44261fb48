"""Mirror pods: the API objects that stand for static pods.

Follows pkg/kubelet/pod/mirror_client.go and tryReconcileMirrorPods of pkg/kubelet/kubelet.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from agent.common.model.labels import CONFIG_HASH, CONFIG_MIRROR
from agent.common.model.pods import Pod
from nodelib.json_values import Json


@dataclass(frozen=True, slots=True)
class CreateMirror:
    pod: Pod


@dataclass(frozen=True, slots=True)
class DeleteMirror:
    """`orphan`: there is no such static pod, and perhaps never was."""

    mirror: Pod
    why: str
    orphan: bool = False


MirrorStep = CreateMirror | DeleteMirror


def is_mirror(raw: Json) -> bool:
    return CONFIG_MIRROR in (raw["metadata"].get("annotations") or {})


def mirrors(mirror: Pod, pod: Pod) -> bool:
    """Whether `mirror` stands for this very pod, not for an earlier manifest of the same name."""
    return _note(mirror, CONFIG_MIRROR) == _note(pod, CONFIG_HASH) != ""


def steps(
    wanted: Mapping[str, Pod], shown: Mapping[str, Pod], dying: Collection[str], *, all_known: bool
) -> Iterator[MirrorStep]:
    """What to create and delete so that the API has a mirror for exactly the `wanted` pods; all by full name.

    `dying`: names whose old pod is still terminating; its mirror stays until then. `all_known`: every source of static
    pods has listed them; before that, no mirror counts as an orphan. Orphans come last: whoever may create pods can
    make any number of them.
    """
    for name, mirror in shown.items():
        pod = wanted.get(name)
        if pod is None:
            continue
        if mirror.is_deleted:
            yield DeleteMirror(mirror, "it was deleted; the static pod runs on")
        elif not mirrors(mirror, pod) and name not in dying:
            yield DeleteMirror(mirror, "the manifest has changed")
    for name, pod in wanted.items():
        if name not in shown:
            yield CreateMirror(pod)
    for name, mirror in shown.items() if all_known else ():
        if name not in wanted and name not in dying and not _waits_for_finalizers(mirror):
            yield DeleteMirror(mirror, "its static pod is gone", orphan=True)


def mirror_object(pod: Pod, node_uid: str) -> Json:
    """The object to create. NodeRestriction wants the Node as its only owner, and no references to other objects."""
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
    """The status that a restarted agent goes on from, once it knows the mirror: the one in the API, as for other pods.

    `status`: computed so far, before the mirror was known; it stays if the mirror has no status yet.
    """
    if not shown.get("conditions"):
        return status
    own = ("phase", "reason", "message")
    kept = {name: value for name, value in shown.items() if name not in own}
    return {**kept, **{name: status[name] for name in own if name in status}}


def _waits_for_finalizers(mirror: Pod) -> bool:
    """Whether it was deleted without any grace already: asking again changes nothing."""
    return mirror.is_deleted and mirror.meta.get("deletionGracePeriodSeconds") == 0


def _note(pod: Pod, name: str) -> str:
    return str((pod.meta.get("annotations") or {}).get(name, ""))
