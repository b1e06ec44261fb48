"""Extended resources that the scheduler has mapped to a ResourceClaim (KEP-5004, gate DRAExtendedResource).

The scheduler makes the claim and writes into the pod's status which request of it stands for which resource of which
container. Upstream: cm/dra/manager.go, cm/devicemanager (isDRAExtendedResource), lifecycle/predicate.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.common.model.pods import Kind, Pod
from agent.common.plan.demand import container_amounts
from nodelib.json_values import Json, object_or_empty


@dataclass(frozen=True, slots=True)
class RequestMapping:
    """The devices of `request` of the claim stand for `resource` in `container`."""

    container: str
    resource: str
    request: str


def claim_name(pod: Pod) -> str:
    """The claim of the pod's extended resources, "": it has none."""
    return str(object_or_empty(pod.status.get("extendedResourceClaimStatus")).get("resourceClaimName") or "")


def mappings(pod: Pod) -> frozenset[RequestMapping]:
    """What of the pod is satisfied by the claim of its extended resources."""
    given = object_or_empty(pod.status.get("extendedResourceClaimStatus")).get("requestMappings")
    return frozenset(
        RequestMapping(str(one.get("containerName")), str(one.get("resourceName")), str(one.get("requestName")))
        for one in given or ()
    )


def requests_of(pod: Pod, container: Json) -> frozenset[str]:
    """The requests of the claim that the container has asked for by its extended resources."""
    asked = {name for name, amount in container_amounts(container, "requests").items() if amount}
    mine = container["name"]
    return frozenset(one.request for one in mappings(pod) if one.container == mine and one.resource in asked)


def without_claimed(pod: Pod) -> Pod:
    """The pod as it counts against what the node has: its claim was counted by the scheduler."""
    claimed = {(one.container, one.resource) for one in mappings(pod)}
    if not claimed:
        return pod
    lists = (Kind.INIT.value, Kind.MAIN.value)
    spec = {name: [_without(one, claimed) for one in pod.spec[name]] for name in lists if pod.spec.get(name)}
    return Pod({**pod.raw, "spec": {**pod.spec, **spec}}, pod.source)


def _without(container: Json, claimed: set[tuple[str, str]]) -> Json:
    resources = object_or_empty(container.get("resources"))
    requests = {
        name: amount
        for name, amount in object_or_empty(resources.get("requests")).items()
        if (container["name"], name) not in claimed
    }
    return {**container, "resources": {**resources, "requests": requests}}
