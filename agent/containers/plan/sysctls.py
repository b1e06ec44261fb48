"""The sysctls of a pod's namespaces: the node's defaults, and what the pod asks for."""

from __future__ import annotations

from collections.abc import Mapping

from agent.common.model.pods import Pod
from agent.common.plan import sysctl_names
from agent.common.plan.sysctl_names import IPC, NET, USER, UTS


def sysctls(pod: Pod, defaults: Mapping[str, str]) -> dict[str, str]:
    """By name, for the sandbox (generatePodSandboxLinuxConfig). A default whose namespace is the node's is left out."""
    items = (pod.spec.get("securityContext") or {}).get("sysctls") or []
    asked = {str(item["name"]): str(item.get("value", "")) for item in items}
    taken = {sysctl_names.normalized(name) for name in asked}
    own = _own_namespaces(pod)
    given = {sysctl_names.normalized(name): value for name, value in defaults.items()}
    return {
        **{k: v for k, v in given.items() if k not in taken and sysctl_names.namespace_of(k) in own},
        **asked,
    }


def _own_namespaces(pod: Pod) -> set[str]:
    own = {NET, UTS} if not pod.host_network else set()
    if not pod.spec.get("hostIPC"):
        own.add(IPC)
    if pod.spec.get("hostUsers") is False:
        own.add(USER)
    return own
