"""The labels under which admissions and rejections are counted (recordAdmissionRejection of pkg/kubelet/kubelet.go)."""

from __future__ import annotations

from agent.common.model.eviction import REASON
from agent.common.model.pods import Kind, Pod
from agent.common.model.refusal import ATTACH_LIMIT, UNEXPECTED
from agent.common.plan import demand

# Upstream's list: a reason may name whatever resource a pod asks for, so others are not counted by themselves.
_KNOWN = frozenset({
    "AppArmor", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "InvalidNodeInfo",
    "InitContainerRestartPolicyForbidden", "SupplementalGroupsPolicyNotSupported", UNEXPECTED, "UnknownReason",
    "UnexpectedPredicateFailureType", "OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods",
    "PodLevelResourcesNotSupported", "PodFeatureUnsupported", "node(s) had taints that the pod didn't tolerate",
    REASON, "SysctlForbidden", "TopologyAffinityError", "NodeShutdown", ATTACH_LIMIT,
})  # fmt: skip


def rejection(reason: str) -> str:
    """The label of a rejection's reason."""
    if reason in _KNOWN:
        return reason
    return "OutOfExtendedResources" if reason.startswith("OutOf") else "Other"


def config_mode(pod: Pod) -> str:
    """Where the pod names resources: for itself, for its containers, for both, or nowhere ("")."""
    whole = any(demand.pod_level(pod, side) for side in ("requests", "limits"))
    parts = any(
        (one.get("resources") or {}).get(side)
        for _, one in pod.containers(Kind.INIT, Kind.MAIN)
        for side in ("requests", "limits")
    )
    return "_and_".join(name for name, is_set in (("pod", whole), ("container", parts)) if is_set) + (
        "_level" if whole or parts else ""
    )
