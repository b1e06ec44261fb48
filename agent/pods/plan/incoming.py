"""Pods as they come to the pod workers: in which order they are taken, and what is done with odd ones.

Odd ones are pods whose spec cannot be planned, and pods that only the runtime still knows.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from agent.admission.plan.admit import NodeView, refusal
from agent.common.model import labels
from agent.common.model.pods import Kind, ObservedPod, Pod, RunState
from agent.common.plan.demand import computed_qos, pod_limits, pod_requests
from agent.common.plan.restart import grace_seconds
from agent.pods.plan.termination import deadline
from agent.probes.plan import specs
from agent.resources.plan.allocation import allocation_of
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.times import time_or
from nodelib.text_numbers import is_number

MAX_FAILURES = 3  # failures of a worker, with nothing of the pod running, until its spec counts as invalid
INVALID_SPEC = "InvalidSpec"
MOST_CONTAINERS = 2000
"""Of a pod, of any kind: as many as a list of the runtime has room for, with the last attempt of each. Upstream has no
limit."""


def admission_order(pods: Iterable[Pod], known: Container[str]) -> list[Pod]:
    """Pods that the runtime has already (`known`: their UIDs) come first, so that new ones get what these leave.

    Within both groups the oldest comes first (HandlePodAdditions of pkg/kubelet/kubelet.go).
    """
    return sorted(pods, key=lambda pod: (pod.uid not in known, _created_at(pod)))


def _created_at(pod: Pod) -> float:
    return time_or(0.0, pod.meta.get("creationTimestamp"))


# --- pods whose spec cannot be planned: the API server lets none through, but a manifest on the node may hold one, and
# so may an API server of another version


def spec_problem(pod: Pod) -> str:
    """Why the pod cannot be planned, as far as its spec shows; "" for nearly all that an API server has validated."""
    try:
        if len(list(pod.containers())) > MOST_CONTAINERS:
            return f"it has more than {MOST_CONTAINERS} containers"
        computed_qos(pod)
        allocation_of(pod)
        pod_requests(pod)
        pod_limits(pod)
        refusal(pod, (), NodeView(name=""))
        for _, container in pod.containers():
            specs(container)
            grace_seconds(pod, container)
        deadline(pod)
    except NodewrightError as error:
        return str(error)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        return f"a field of it has the wrong type ({error})"
    return ""


def invalid_spec_message(problem: str) -> str:
    """The message of the pod's status and of its event."""
    return f"the pod's spec cannot be used: {problem}"


def still_running_message(problem: str) -> str:
    """The message of the event about such a pod whose containers run, because an earlier agent could use its spec."""
    return f"{invalid_spec_message(problem)}; its containers run on unwatched until the pod is deleted"


def is_up(seen: ObservedPod) -> bool:
    """Whether anything of the pod runs."""
    return any(one.ready for one in seen.sandboxes) or any(one.state is RunState.RUNNING for one in seen.containers)


def with_spec_of(pod: Pod, before: Pod) -> Pod:
    """The newest metadata and status of a pod, with the spec that could be used. Its generation stays the old one."""
    meta = {**pod.meta, "generation": before.meta.get("generation")}
    return Pod({**pod.raw, "metadata": meta, "spec": before.spec}, pod.source)


def without_spec(pod: Pod) -> Pod:
    """The same pod with nothing but the names and images of its containers: enough to show it and to end it."""
    spec: Json = {"nodeName": pod.spec.get("nodeName"), "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    for kind in (Kind.INIT, Kind.MAIN):
        listed = pod.spec.get(kind.value)
        named = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        spec[kind.value] = [
            {"name": str(one.get("name") or "?"), "image": str(one.get("image") or "")} for one in named
        ]
    status = pod.raw.get("status")
    shown = {key: status[key] for key in ("phase", "startTime") if key in status} if isinstance(status, dict) else {}
    return Pod({**pod.raw, "spec": spec, "status": shown}, pod.source)


# --- pods that only the runtime knows


def orphan_pod(seen: ObservedPod) -> Pod | None:
    """A Pod made from the runtime's labels when its object is gone: enough to stop it gracefully, like any other."""
    sandbox, container = seen.sandbox, next(iter(seen.containers), None)
    if sandbox is None and container is None:
        return None
    named = sandbox.labels if sandbox is not None else (container.labels if container is not None else {})
    annotations = container.annotations if container is not None else {}
    grace = annotations.get(labels.DELETION_GRACE) or annotations.get(labels.TERMINATION_GRACE) or "30"
    return Pod(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "uid": seen.uid,
                "name": named.get(labels.POD_NAME, sandbox.name if sandbox else "unknown"),
                "namespace": named.get(labels.POD_NAMESPACE, sandbox.namespace if sandbox else "unknown"),
            },
            "spec": {
                "containers": [],
                "terminationGracePeriodSeconds": int(grace) if is_number(grace) else 30,
                "hostNetwork": sandbox is not None and sandbox.network_mode == "NODE",
            },
        },
        source="runtime",
    )
