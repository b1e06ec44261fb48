"""A pod whose spec no plan can be made of: how little of it is kept, so that it can be told of and brought down.

The API server lets no such pod through; a file of the node may hold one, and so may an API server of another version.
"""

from __future__ import annotations

from agent.admission.plan.admit import NodeView, refusal
from agent.common.model.pods import Kind, Pod
from agent.common.plan.demand import computed_qos, pod_requests
from agent.common.plan.restart import grace_seconds
from agent.pods.plan.termination import deadline
from agent.probes.plan import specs
from agent.resources.plan.allocation import allocation_of
from nodelib.errors import NodewrightError
from nodelib.json_values import Json

TRIES = 3  # failures of a worker, with nothing of the pod running, until its spec is given up
REASON = "InvalidSpec"


def bare(pod: Pod) -> Pod:
    """The same pod with the names of its containers and nothing else of its spec."""
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


def problem(pod: Pod) -> str:
    """Why no plan can be made of it, as far as its spec tells; "" for every pod that an API server let through."""
    try:
        computed_qos(pod)
        allocation_of(pod)
        pod_requests(pod)
        refusal(pod, (), NodeView(name=""))
        for _, container in pod.containers():
            specs(container)
            grace_seconds(pod, container)
        deadline(pod)
    except NodewrightError as error:
        return str(error)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        return f"a field of it is of another kind than it has to be ({error})"
    return ""


def message(problem: str) -> str:
    """What the pod's status and its event say."""
    return f"the pod's spec cannot be worked with: {problem}"
