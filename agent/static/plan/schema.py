"""The types of the fields of a v1 Pod (k8s.io/api/core/v1 types.go), as far as a node reads them.

Other pods have passed the API server's decoder, which refuses fields of a wrong type; a manifest is checked only here.
A shape is the name of a scalar, [shape] for a list, {"*": shape} for a map, {field: shape} for a struct. A field that
is not in this table is newer than it and is passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodelib import quantity
from nodelib.errors import Invalid

Shape = str | list[Any] | dict[str, Any]

_STRINGS: Shape = {"*": "string"}
_AMOUNTS: Shape = {"*": "quantity"}
_ANY: Shape = "any"
_SELECTOR: dict[str, Shape] = {"name": "string", "optional": "bool"}
_KEY: Shape = {**_SELECTOR, "key": "string"}
_RESOURCES: Shape = {"limits": _AMOUNTS, "requests": _AMOUNTS, "claims": [{"name": "string", "request": "string"}]}
_FIELD: Shape = {"apiVersion": "string", "fieldPath": "string"}
_RESOURCE_FIELD: Shape = {"containerName": "string", "resource": "string", "divisor": "quantity"}
_ITEMS: Shape = [{"key": "string", "path": "string", "mode": "int", "user": "int"}]
_HTTP: Shape = {
    "path": "string",
    "port": "port",
    "host": "string",
    "scheme": "string",
    "httpHeaders": [{"name": "string", "value": "string"}],
}
_ACTIONS: dict[str, Shape] = {
    "exec": {"command": ["string"]},
    "httpGet": _HTTP,
    "tcpSocket": {"port": "port", "host": "string"},
}
_HANDLER: Shape = {**_ACTIONS, "sleep": {"seconds": "int"}}
_PROBE: Shape = {
    **_ACTIONS,
    "grpc": {"port": "int", "service": "string"},
    "initialDelaySeconds": "int",
    "timeoutSeconds": "int",
    "periodSeconds": "int",
    "successThreshold": "int",
    "failureThreshold": "int",
    "terminationGracePeriodSeconds": "int",
}
_PROFILE: Shape = {"type": "string", "localhostProfile": "string"}
_SELINUX: Shape = {"user": "string", "role": "string", "type": "string", "level": "string"}
_SECURITY: Shape = {
    "capabilities": {"add": ["string"], "drop": ["string"]},
    "privileged": "bool",
    "seLinuxOptions": _SELINUX,
    "runAsUser": "int",
    "runAsGroup": "int",
    "runAsNonRoot": "bool",
    "readOnlyRootFilesystem": "bool",
    "allowPrivilegeEscalation": "bool",
    "procMount": "string",
    "seccompProfile": _PROFILE,
    "appArmorProfile": _PROFILE,
}
_ENV_SOURCE: Shape = {
    "fieldRef": _FIELD,
    "resourceFieldRef": _RESOURCE_FIELD,
    "configMapKeyRef": _KEY,
    "secretKeyRef": _KEY,
    "fileKeyRef": {"volumeName": "string", "path": "string", "key": "string", "optional": "bool"},
}
_CONTAINER: Shape = {
    "name": "string",
    "image": "string",
    "command": ["string"],
    "args": ["string"],
    "workingDir": "string",
    "ports": [
        {"name": "string", "hostPort": "int", "containerPort": "int", "protocol": "string", "hostIP": "string"},
    ],
    "envFrom": [{"prefix": "string", "configMapRef": _SELECTOR, "secretRef": _SELECTOR}],
    "env": [{"name": "string", "value": "string", "valueFrom": _ENV_SOURCE}],
    "resources": _RESOURCES,
    "resizePolicy": [{"resourceName": "string", "restartPolicy": "string"}],
    "restartPolicy": "string",
    "restartPolicyRules": [{"action": "string", "exitCodes": {"operator": "string", "values": ["int"]}}],
    "volumeMounts": [
        {
            "name": "string",
            "readOnly": "bool",
            "recursiveReadOnly": "string",
            "mountPath": "string",
            "subPath": "string",
            "mountPropagation": "string",
            "subPathExpr": "string",
        }
    ],
    "volumeDevices": [{"name": "string", "devicePath": "string"}],
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "lifecycle": {"postStart": _HANDLER, "preStop": _HANDLER, "stopSignal": "string"},
    "terminationMessagePath": "string",
    "terminationMessagePolicy": "string",
    "imagePullPolicy": "string",
    "securityContext": _SECURITY,
    "stdin": "bool",
    "stdinOnce": "bool",
    "tty": "bool",
    "targetContainerName": "string",
}
_DOWNWARD: Shape = [
    {"path": "string", "fieldRef": _FIELD, "resourceFieldRef": _RESOURCE_FIELD, "mode": "int", "user": "int"}
]
_VOLUME: Shape = {
    "name": "string",
    "hostPath": {"path": "string", "type": "string"},
    "emptyDir": {"medium": "string", "sizeLimit": "quantity", "mode": "int"},
    "downwardAPI": {"items": _DOWNWARD, "defaultMode": "int", "defaultUser": "int"},
    "image": {"reference": "string", "pullPolicy": "string"},
    "secret": {"secretName": "string", "items": _ITEMS, "defaultMode": "int", "defaultUser": "int", "optional": "bool"},
    "configMap": {"name": "string", "items": _ITEMS, "defaultMode": "int", "defaultUser": "int", "optional": "bool"},
    "projected": {"sources": [{"downwardAPI": {"items": _DOWNWARD}}], "defaultMode": "int", "defaultUser": "int"},
}
_SPEC: Shape = {
    "volumes": [_VOLUME],
    "initContainers": [_CONTAINER],
    "containers": [_CONTAINER],
    "ephemeralContainers": [_CONTAINER],
    "restartPolicy": "string",
    "terminationGracePeriodSeconds": "int",
    "activeDeadlineSeconds": "int",
    "dnsPolicy": "string",
    "nodeSelector": _STRINGS,
    "serviceAccountName": "string",
    "serviceAccount": "string",
    "automountServiceAccountToken": "bool",
    "nodeName": "string",
    "hostNetwork": "bool",
    "hostPID": "bool",
    "hostIPC": "bool",
    "hostUsers": "bool",
    "shareProcessNamespace": "bool",
    "securityContext": {
        "seLinuxOptions": _SELINUX,
        "runAsUser": "int",
        "runAsGroup": "int",
        "runAsNonRoot": "bool",
        "supplementalGroups": ["int"],
        "supplementalGroupsPolicy": "string",
        "fsGroup": "int",
        "sysctls": [{"name": "string", "value": "string"}],
        "fsGroupChangePolicy": "string",
        "seccompProfile": _PROFILE,
        "appArmorProfile": _PROFILE,
    },
    "imagePullSecrets": [{"name": "string"}],
    "hostname": "string",
    "subdomain": "string",
    "affinity": _ANY,
    "schedulerName": "string",
    "tolerations": [
        {"key": "string", "operator": "string", "value": "string", "effect": "string", "tolerationSeconds": "int"}
    ],
    "hostAliases": [{"ip": "string", "hostnames": ["string"]}],
    "priorityClassName": "string",
    "priority": "int",
    "dnsConfig": {
        "nameservers": ["string"],
        "searches": ["string"],
        "options": [{"name": "string", "value": "string"}],
    },
    "readinessGates": [{"conditionType": "string"}],
    "runtimeClassName": "string",
    "enableServiceLinks": "bool",
    "preemptionPolicy": "string",
    "overhead": _AMOUNTS,
    "topologySpreadConstraints": _ANY,
    "setHostnameAsFQDN": "bool",
    "os": {"name": "string"},
    "resourceClaims": _ANY,
    "resources": _RESOURCES,
}
POD: Shape = {
    "apiVersion": "string",
    "kind": "string",
    "metadata": {
        "name": "string",
        "namespace": "string",
        "uid": "string",
        "labels": _STRINGS,
        "annotations": _STRINGS,
        "finalizers": ["string"],
    },
    "spec": _SPEC,
    "status": _ANY,
}


def problems(value: Any, shape: Shape = POD, path: str = "") -> Iterator[str]:
    """One line for each field of a wrong type: its path, and what it must be."""
    if value is None:
        return
    if isinstance(shape, str):
        problem = _scalar_problem(value, shape)
        if problem:
            yield f"{path}: {problem}"
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{path}: must be a list, not {_kind(value)}"
            return
        for index, item in enumerate(value):
            if item is None:
                yield f"{path}[{index}]: is empty"
            yield from problems(item, shape[0], f"{path}[{index}]")
    elif not isinstance(value, dict):
        yield f"{path or 'the document'}: must be a mapping, not {_kind(value)}"
    else:
        for key, item in value.items():
            inner = shape.get(key, shape.get("*"))
            if inner is not None:
                yield from problems(item, inner, f"{path}.{key}" if path else key)


def _scalar_problem(value: Any, kind: str) -> str:
    if kind == "any":
        return ""
    if kind == "bool":
        return "" if isinstance(value, bool) else f"must be true or false, not {_kind(value)}"
    if kind == "int":
        return "" if _is_int(value) else f"must be a whole number, not {_kind(value)}"
    if kind == "port":
        return "" if _is_int(value) or isinstance(value, str) else f"must be a number or a name, not {_kind(value)}"
    if kind == "quantity":
        return _quantity_problem(value)
    return "" if isinstance(value, str) else f"must be a string, not {_kind(value)}; put it in quotes"


def _quantity_problem(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return f"must be a quantity such as 100m or 1Gi, not {_kind(value)}"
    try:
        quantity.parse(value)
    except Invalid as error:
        return error.message
    return ""


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return f"{'true or false' if isinstance(value, bool) else type(value).__name__} {value!r}"[:80]
