"""CRI PodSandboxConfig of a pod. Follows pkg/kubelet/kuberuntime/kuberuntime_sandbox.go."""

from __future__ import annotations

from agent.common.model import labels
from agent.common.model.pod_settings import PodDefaults
from agent.common.model.pods import Kind, Pod
from agent.containers.plan import hosts, security
from agent.containers.plan.dns import Dns
from agent.containers.plan.sysctls import sysctls
from nodelib.json_values import Json

_PROTOCOLS = {"TCP": "TCP", "UDP": "UDP", "SCTP": "SCTP"}


def sandbox_config(
    pod: Pod,
    settings: PodDefaults,
    dns: Dns,
    *,
    users: Json,
    cgroup_parent: str,
    attempt: int,
    resources: Json,
    overhead: Json,
) -> Json:
    """The configuration of one sandbox attempt; `users`: the pod's CRI UserNamespace.

    Raises Invalid for names that the kernel or DNS do not allow.
    """
    config: Json = {
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid, "attempt": attempt},
        "labels": labels.sandbox_labels(pod),
        "annotations": labels.sandbox_annotations(pod),
        "log_directory": pod_log_directory(pod, settings),
        "dns_config": dns.as_cri(),
        "port_mappings": port_mappings(pod),
        "linux": {
            "cgroup_parent": cgroup_parent,
            "security_context": _security(pod, users),
            "sysctls": sysctls(pod, settings.sysctls),
            "resources": resources,
            "overhead": overhead,
        },
    }
    if not pod.host_network:
        config["hostname"] = hosts.kernel_hostname(pod, settings.cluster_domain)
    return config


def pod_log_directory(pod: Pod, settings: PodDefaults) -> str:
    return f"{settings.pod_logs_dir}/{pod.namespace}_{pod.name}_{pod.uid}"


def port_mappings(pod: Pod) -> list[Json]:
    """The ports of the main containers; of several with the same name or the same meaning the first counts."""
    made: list[Json] = []
    for _, container in pod.containers(Kind.MAIN):
        seen: set[str] = set()
        for port in container.get("ports") or []:
            protocol, host_ip = port.get("protocol") or "TCP", port.get("hostIP") or ""
            number, host_port = int(port.get("containerPort") or 0), int(port.get("hostPort") or 0)
            family = "any" if not host_ip else "v6" if ":" in host_ip else "v4"
            key = port.get("name") or f"{family}-{protocol}-{host_ip}:{number}:{host_port}"
            if key in seen:
                continue
            seen.add(key)
            made.append(
                {
                    "protocol": _PROTOCOLS.get(protocol, "TCP"),
                    "container_port": number,
                    "host_port": host_port,
                    "host_ip": host_ip,
                }
            )
    return made


def _security(pod: Pod, users: Json) -> Json:
    context = pod.spec.get("securityContext") or {}
    made: Json = {
        "privileged": any((c.get("securityContext") or {}).get("privileged") for _, c in pod.containers()),
        "seccomp": {"profile_type": "RuntimeDefault"},
        "namespace_options": security.namespaces(pod, users),
        **security.supplemental_groups(pod),
    }
    for key, field in (("runAsUser", "run_as_user"), ("runAsGroup", "run_as_group")):
        if context.get(key) is not None:
            made[field] = {"value": context[key]}
    if context.get("seLinuxOptions"):
        made["selinux_options"] = security.selinux(context["seLinuxOptions"])
    return made
