"""Why a PersistentVolumeClaim is not bound, or does not go. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from agent.explain.model import Wait
from cli.why.findings import at_time, finding, warning
from cli.why.model import Explained, Facts, condition, namespace_of, spec_of, status_of
from cli.why.remedies import remedy
from nodelib.json_values import Json, object_or_empty, objects_in

_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_LATER = "WaitForFirstConsumer"
_CHOSEN = "volume.kubernetes.io/selected-node"  # by the scheduler, for a claim that is bound late
_GROWTH = {"ControllerResizeError": "its resizer", "NodeResizeError": "its node"}  # who cannot, by the condition


def claim(obj: Json, facts: Facts) -> Explained:
    status = status_of(obj)
    phase = str(status.get("phase") or "Pending")
    return finding("pvc", obj, phase, _waits(obj, phase, facts), facts)


def users(obj: Json, facts: Facts) -> list[Json]:
    """The pods that use the claim."""
    own = namespace_of(obj), obj["metadata"]["name"]
    return facts.found("pod", "claim", lambda one: [(namespace_of(one), name) for name in claims_of(one)], own)


def waiting(namespace: str, name: str, facts: Facts) -> Json | None:
    """The claim of that name, if it waits for something. A claim is judged once, however many pods use it."""
    found = facts.found(
        "pvc",
        "waiting",
        lambda one: [(namespace_of(one), one["metadata"]["name"])] if claim(one, facts).found.waits else [],
        (namespace, name),
    )
    return found[0] if found else None


def claims_of(pod: Json) -> set[str]:
    """The names of the claims that a pod uses; those of ephemeral volumes are made of its name."""
    found = set()
    for volume in objects_in(spec_of(pod).get("volumes")):
        if "ephemeral" in volume:
            found.add(f"{pod['metadata']['name']}-{volume.get('name')}")
        found.add(str(object_or_empty(volume.get("persistentVolumeClaim")).get("claimName") or ""))
    return found - {""}


def _waits(obj: Json, phase: str, facts: Facts) -> Iterator[Wait]:
    meta = obj["metadata"]
    since = at_time(meta.get("deletionTimestamp") or meta.get("creationTimestamp"))
    if meta.get("deletionTimestamp"):
        yield _going(obj, since, facts)
    elif phase == "Lost":
        text = f"its PersistentVolume {spec_of(obj).get('volumeName')} is gone"
        yield _wait(obj, "its volume", "Lost", text, since)
    elif phase == "Pending":
        yield from _unbound(obj, since, facts)
    else:
        yield from _small(obj)


def _small(obj: Json) -> Iterator[Wait]:
    """A claim that asks for more than it has, and cannot get it."""
    for kind, on in _GROWTH.items():
        found = condition(obj, kind)
        if found.get("status") == "True":
            text = str(found.get("message") or "its volume cannot grow")
            yield _wait(obj, on, kind, text, at_time(found.get("lastTransitionTime")))


def _going(obj: Json, since: float | None, facts: Facts) -> Wait:
    using = sorted(one["metadata"]["name"] for one in users(obj, facts))
    if using:
        return _wait(obj, "pods", "InUse", f"it is deleted, and still used by {', '.join(using[:5])}", since)
    return _wait(obj, "finalizers", "Finalizers", ", ".join(obj["metadata"].get("finalizers") or []), since)


def _unbound(obj: Json, since: float | None, facts: Facts) -> Iterator[Wait]:
    name = spec_of(obj).get("storageClassName")
    classes = {one["metadata"]["name"]: one for one in facts.all("storageclass")}
    if name is None:
        there = f"there is: {', '.join(sorted(classes))}" if classes else "the cluster has none at all"
        text = f"the claim names no StorageClass and there is no default StorageClass ({there})"
        if not any(_is_default(one) for one in classes.values()):
            yield _wait(obj, "a StorageClass", "NoDefaultStorageClass", text, since)
        return
    if name == "":
        text = "no PersistentVolume without a class fits it, and without a class none is made"
        yield _wait(obj, "a PersistentVolume", "NoVolumeFits", text, since)
        return
    found = classes.get(name)
    failed = warning(facts.events(obj), "ProvisioningFailed")
    if found is None:
        text = f'there is no StorageClass "{name}", and no PersistentVolume of that class fits'
        yield _wait(obj, "a StorageClass", "NoStorageClass", text, since)
    elif failed:
        text = str(failed.get("message", ""))
        yield _wait(obj, "its provisioner", "ProvisioningFailed", text, since)
    elif found.get("provisioner") == "kubernetes.io/no-provisioner":
        text = f'no PersistentVolume of class "{name}" fits it, and this class makes none'
        yield from [_wait(obj, "a PersistentVolume", "NoVolumeFits", text, since)] if _is_due(obj, found, facts) else ()
    elif found.get("volumeBindingMode") == _LATER and not _chosen_node(obj):
        yield from _without_node(obj, since, facts)
    elif _is_due(obj, found, facts):
        text = f"{found.get('provisioner')} has not made its volume yet"
        yield _wait(obj, "its provisioner", "Provisioning", text, since)


def _chosen_node(obj: Json) -> str:
    return str(object_or_empty(obj["metadata"].get("annotations")).get(_CHOSEN) or "")


def _without_node(obj: Json, since: float | None, facts: Facts) -> Iterator[Wait]:
    """A claim that is bound late, before the scheduler has chosen its node: nothing, unless pods use it. The reason is
    that of the event which the controller of volumes writes then."""
    using = users(obj, facts)
    if not using:
        return
    unplaced = next((one for one in using if not spec_of(one).get("nodeName")), None)
    if unplaced is not None:
        text = f"its volume is made on its pod's node, and none is chosen yet for pod {unplaced['metadata']['name']}"
    else:  # the scheduler binds volumes before it gives a pod its node, so somebody else gave it
        text = f"pod {using[0]['metadata']['name']} has its node from spec.nodeName: no scheduler chooses one for it"
    yield _wait(obj, "a node", "WaitForPodScheduled", text, since)


def _is_due(obj: Json, cls: Json, facts: Facts) -> bool:
    """Whether it should be bound by now: with a class that binds late not before a pod uses the claim."""
    return cls.get("volumeBindingMode") != _LATER or bool(users(obj, facts))


def _is_default(cls: Json) -> bool:
    notes = object_or_empty(cls["metadata"].get("annotations"))
    return any(notes.get(key) == "true" for key in _DEFAULT)


def _wait(obj: Json, on: str, reason: str, text: str, since: float | None) -> Wait:
    return Wait(on, reason, text, remedy(reason, text, "pvc", obj), since)
