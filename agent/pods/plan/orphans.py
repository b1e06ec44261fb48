"""A pod that the runtime knows and nobody wants, as a desired one: it has to be brought down like any other."""

from __future__ import annotations

from agent.common.model import labels
from agent.common.model.pods import ObservedPod, Pod


def orphan_pod(seen: ObservedPod) -> Pod | None:
    """What the runtime's labels say of a pod whose object is gone; enough to bring it down gracefully."""
    box, one = seen.sandbox, next(iter(seen.containers), None)
    if box is None and one is None:
        return None
    told = box.labels if box is not None else (one.labels if one is not None else {})
    notes = one.annotations if one is not None else {}
    grace = notes.get(labels.DELETION_GRACE) or notes.get(labels.TERMINATION_GRACE) or "30"
    return Pod(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "uid": seen.uid,
                "name": told.get(labels.POD_NAME, box.name if box else "unknown"),
                "namespace": told.get(labels.POD_NAMESPACE, box.namespace if box else "unknown"),
            },
            "spec": {
                "containers": [],
                "terminationGracePeriodSeconds": int(grace) if grace.isdigit() else 30,
                "hostNetwork": box is not None and box.network_mode == "NODE",
            },
        },
        source="runtime",
    )
