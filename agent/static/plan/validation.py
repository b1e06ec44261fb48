"""Validates static pods: the part of the API's validation that a node depends on, and no references to API objects.

Follows ValidatePodCreate in pkg/apis/core/validation and HasAPIObjectReference in pkg/api/pod. The API server checks
the mirror pod in full; its refusal becomes an event of the pod.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from agent.common.model.pods import Kind, Pod
from agent.common.plan import demand
from agent.common.plan.names import check_names
from agent.userns.plan import contradictions
from nodelib.errors import Invalid
from nodelib.json_values import Json

_ENUMS = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
}
_CONTAINER_ENUMS = {
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "terminationMessagePolicy": ("File", "FallbackToLogsOnError"),
}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_FREE_VOLUMES = frozenset({"downwardAPI", "emptyDir", "hostPath", "image", "nfs", "iscsi", "fc", "flexVolume"})
_API_VOLUMES = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
}
_API_SOURCES = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}
_CRITICAL = 2_000_001_000  # system-node-critical
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def problems(pod: Pod) -> Iterator[str]:
    """One line for each reason not to run this pod, whose types have been checked and defaults filled in."""
    try:
        check_names(pod)
    except Invalid as error:
        yield error.message
        return
    yield from _enum_problems(pod.spec, _ENUMS, "spec")
    for name, value in (pod.meta.get("labels") or {}).items():
        if not _LABEL_VALUE.fullmatch(value or ""):
            yield f"metadata.labels.{name}: {value!r} is not a valid label value"
    if (pod.spec.get("activeDeadlineSeconds") or 1) < 1:
        yield "spec.activeDeadlineSeconds: must be at least 1"
    for name in contradictions(pod.spec):
        yield f"spec.{name}: is forbidden when hostUsers is false"
    mains = list(pod.containers(Kind.MAIN))
    if not mains:
        yield "spec.containers: at least one container is needed"
    if next(pod.containers(Kind.EPHEMERAL), None) is not None:
        yield "spec.ephemeralContainers: can only be added to a running pod through the API"
    yield from _doubled([container["name"] for _, container in pod.containers()], "container")
    volumes = [volume["name"] for volume in pod.spec.get("volumes") or []]
    yield from _doubled(volumes, "volume")
    for kind, container in pod.containers():
        yield from _container_problems(container, frozenset(volumes), f"{kind.value}[{container['name']}]")


def api_reference(pod: Pod) -> str:
    """The kind of API object that the pod refers to, which a static pod may not; "" for none."""
    spec = pod.spec
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        return "serviceaccounts"
    if any(one.get("name") for one in spec.get("imagePullSecrets") or []):
        return "secrets"
    for _, container in pod.containers():
        found = _environment_reference(container)
        if found:
            return found
    if spec.get("resourceClaims"):
        return "resourceclaims"
    return next(filter(None, (_volume_reference(volume) for volume in spec.get("volumes") or [])), "")


def priority_warning(pod: Pod) -> str:
    """Upstream's warning about a priority for which the mirror pod would be refused, or evicted to no effect."""
    priority, name = pod.spec.get("priority"), pod.spec.get("priorityClassName") or ""
    if priority is None and name:
        return "has priorityClassName but no priority: only the mirror pod gets that class, if it is accepted at all"
    if priority is not None and not name:
        return "has priority but no priorityClassName: the mirror pod is refused if the default class differs"
    if priority is not None and (priority != _CRITICAL or name != "system-node-critical"):
        return (
            f"has another priority than {_CRITICAL} (system-node-critical): "
            "its mirror pod may be evicted, although that does not stop the static pod"
        )
    return ""


def _container_problems(container: Json, volumes: frozenset[str], path: str) -> Iterator[str]:
    if not container.get("image"):
        yield f"{path}.image: is required"
    yield from _enum_problems(container, _CONTAINER_ENUMS, path)
    for port in container.get("ports") or []:
        for name, lowest in (("containerPort", 1), ("hostPort", 0)):
            if not lowest <= (port.get(name) or 0) <= 65535:
                yield f"{path}.ports: {name} {port.get(name)} is not a port number"
    for one in container.get("env") or []:
        if not one.get("name") or "=" in one["name"]:
            yield f"{path}.env: {one.get('name')!r} is not a name"
    for mount in container.get("volumeMounts") or []:
        yield from _mount_problems(mount, volumes, f"{path}.volumeMounts[{mount.get('name')}]")
    for name in _PROBES:
        if container.get(name):
            yield from _handler_problems(container[name], f"{path}.{name}")
    for name, hook in (container.get("lifecycle") or {}).items():
        if isinstance(hook, dict):
            yield from _handler_problems(hook, f"{path}.lifecycle.{name}")
    requests, limits = (demand.container_amounts(container, side) for side in ("requests", "limits"))
    for name, amount in requests.items():
        if amount < 0 or amount > limits.get(name, amount):
            yield f"{path}.resources.requests.{name}: must be at least 0 and at most the limit"


def _mount_problems(mount: Json, volumes: frozenset[str], path: str) -> Iterator[str]:
    if mount.get("name") not in volumes:
        yield f"{path}: there is no volume of that name"
    if not mount.get("mountPath"):
        yield f"{path}.mountPath: is required"
    if ".." in (mount.get("subPath") or "").split("/"):
        yield f"{path}.subPath: must not contain '..'"


def _handler_problems(handler: Json, path: str) -> Iterator[str]:
    given = [name for name in _HANDLERS if handler.get(name)]
    if len(given) != 1:
        yield f"{path}: needs exactly one of {', '.join(_HANDLERS)}, has {', '.join(given) or 'none'}"
    elif given[0] in ("httpGet", "tcpSocket", "grpc") and handler[given[0]].get("port") in (None, "", 0):
        yield f"{path}.{given[0]}.port: is required"
    elif given[0] == "exec" and not handler["exec"].get("command"):
        yield f"{path}.exec.command: is required"


def _enum_problems(holder: Json, enums: dict[str, tuple[str, ...]], path: str) -> Iterator[str]:
    for name, allowed in enums.items():
        if holder.get(name) not in allowed:
            yield f"{path}.{name}: {holder.get(name)!r} is not one of {', '.join(allowed)}"


def _doubled(names: list[str], what: str) -> Iterator[str]:
    for name in sorted(name for name, count in Counter(names).items() if count > 1):
        yield f"{what} {name!r} is there more than once"


def _environment_reference(container: Json) -> str:
    for one in container.get("envFrom") or []:
        if one.get("secretRef") or one.get("configMapRef"):
            return "secrets" if one.get("secretRef") else "configmaps"
    for one in container.get("env") or []:
        source: dict[str, Any] = one.get("valueFrom") or {}
        if source.get("secretKeyRef") or source.get("configMapKeyRef"):
            return "secrets" if source.get("secretKeyRef") else "configmaps"
    return ""


def _volume_reference(volume: Json) -> str:
    kind = next((key for key, value in volume.items() if key != "name" and value is not None), "")
    if kind in _FREE_VOLUMES:
        return ""
    if kind != "projected":
        return _API_VOLUMES.get(kind, f"an unknown kind of object (volume {volume['name']} of kind {kind!r})")
    for source in volume["projected"].get("sources") or []:
        for name, value in source.items():
            if value is not None and name != "downwardAPI":
                return _API_SOURCES.get(name, f"an unknown source of projected volume {volume['name']}")
    return ""
