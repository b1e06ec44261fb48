"""Fields and resources of a pod as text: fieldRef and resourceFieldRef of environment and volumes.

Follows pkg/fieldpath, pkg/api/v1/resource (ExtractContainerResourceValue) and, for limits that
are not set, pkg/kubelet/kubelet_resources.go: pod-level limits, then the node's allocatable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal

from agent.common.model.pod_settings import NodeContext
from agent.common.model.pods import Pod
from nodelib import quantity
from nodelib.errors import Invalid
from nodelib.json_values import Json

_SUBSCRIPTED = re.compile(r"(.+?)\['(.*)'\]", re.DOTALL)
_DEFAULTED = ("cpu", "memory", "ephemeral-storage")
_QUOTED = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}


def pod_field(pod: Pod, path: str) -> str:
    """A field that volumes may show: name, namespace, uid, labels, annotations. Raises Invalid for any other."""
    match = _SUBSCRIPTED.fullmatch(path)
    if match:
        parent, key = match.groups()
        if parent not in ("metadata.labels", "metadata.annotations"):
            raise _unsupported(path)
        return str((pod.meta.get(parent.removeprefix("metadata.")) or {}).get(key, ""))
    match path:
        case "metadata.labels" | "metadata.annotations":
            return format_map(pod.meta.get(path.removeprefix("metadata.")) or {})
        case "metadata.name":
            return pod.name
        case "metadata.namespace":
            return pod.namespace
        case "metadata.uid":
            return pod.uid
    raise _unsupported(path)


def env_field(pod: Pod, path: str, pod_ips: Sequence[str], node: NodeContext) -> str:
    """A field that environment variables may show: those of volumes, the node's name and the addresses."""
    match path:
        case "spec.nodeName":
            return str(pod.spec.get("nodeName", ""))
        case "spec.serviceAccountName":
            return str(pod.spec.get("serviceAccountName", ""))
        case "status.hostIP":
            return node.host_ips[0] if node.host_ips else ""
        case "status.hostIPs":
            return ",".join(node.host_ips)
        case "status.podIP":
            return pod_ips[0] if pod_ips else ""
        case "status.podIPs":
            return ",".join(pod_ips)
    return pod_field(pod, path)


def resource_field(pod: Pod, selector: Json, node: NodeContext, container: Json | None = None) -> str:
    """A request or limit in whole multiples of its divisor, rounded up.

    `container` is the one that the field belongs to, unless the selector has a containerName.
    """
    name = selector.get("containerName") or ""
    if name:
        found = pod.container(name)
        if found is None:
            raise Invalid(f"container {name!r} not found", obj=f"pod {pod.full_name}", step="resourceFieldRef")
        container = found[1]
    if container is None:
        raise Invalid("containerName is missing", obj=f"pod {pod.full_name}", step="resourceFieldRef")
    where, _, resource = str(selector.get("resource", "")).partition(".")
    if where not in ("limits", "requests") or not (resource in _DEFAULTED or resource.startswith("hugepages-")):
        raise Invalid(f"unsupported container resource: {where}.{resource}", obj=f"pod {pod.full_name}")
    amount = quantity.parse(_amount(pod, container, where, resource, node))
    divisor = quantity.parse(selector.get("divisor") or "0") or Decimal(1)
    if resource == "cpu":
        return _ceiling(Decimal(_whole(amount * 1000)) / Decimal(_whole(divisor * 1000) or 1))
    return _ceiling(Decimal(_whole(amount)) / Decimal(_whole(divisor) or 1))


def _amount(pod: Pod, container: Json, where: str, resource: str, node: NodeContext) -> str:
    resources = container.get("resources") or {}
    given = str((resources.get(where) or {}).get(resource, "0"))
    if where == "requests" or resource not in _DEFAULTED or quantity.parse(given) != 0:
        return given
    fallback = node.allocatable.get(resource)
    pod_level = ((pod.spec.get("resources") or {}).get("limits") or {}).get(resource)
    if fallback is not None and pod_level is not None and quantity.parse(pod_level) != 0:
        fallback = pod_level
    return str(fallback if fallback is not None else "0")


def format_map(values: Mapping[str, str]) -> str:
    """Sorted lines of key="value", quoted as Go's strconv.Quote does (fieldpath.FormatMap)."""
    return "\n".join(f"{key}={go_quote(value)}" for key, value in sorted(values.items()))


def go_quote(text: str) -> str:
    """A Go string literal: printable runes stay, everything else is escaped."""
    if text.isprintable():  # nearly always, and quick: a pod may show its annotations in hundreds of files
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return '"' + "".join(_quote_rune(char) for char in text) + '"'


def _quote_rune(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    if char in _QUOTED:
        return _QUOTED[char]
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _whole(number: Decimal) -> int:
    return int(number.to_integral_value(ROUND_CEILING))


def _ceiling(number: Decimal) -> str:
    return str(_whole(number))


def _unsupported(path: str) -> Invalid:
    return Invalid(
        f"unsupported fieldPath: {json.dumps(path)}",
        step="downward API",
        action="Use metadata.name, .namespace, .uid, .labels, .annotations (or one key of the last two as ['key']).",
    )
