"""The defaults that the API server puts into a Pod (pkg/apis/core/v1/defaults.go).

The API server does not see a static pod before it runs. Its mirror pod is made from the completed spec, so that both
are the same. Pod-level resources: pkg/api/pod, defaultHugePagePodLimits and defaultPodRequests.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from agent.common.model.pods import Kind, Pod
from agent.common.plan import demand
from agent.images.plan.images import pull_policy
from nodelib import quantity
from nodelib.json_values import Json

_MODE = 0o644
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_TOKEN_LIFE = 3600  # seconds


def defaulted(raw: Json) -> Json:
    """A copy of a Pod, whose types have been checked, with everything filled in that a client may leave out."""
    pod = copy.deepcopy(raw)
    spec = pod["spec"]
    _fill(spec, {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler"})
    _add(spec, {"terminationGracePeriodSeconds": 30, "enableServiceLinks": True, "securityContext": {}})
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for volume in spec.get("volumes") or []:
        _volume(volume)
    for kind in Kind:
        for container in spec.get(kind.value) or []:
            _container(container)
            if kind is not Kind.EPHEMERAL:
                _requests(container, bool(spec.get("hostNetwork")))
    _pod_requests(pod)
    return pod


def _container(container: Json) -> None:
    container["imagePullPolicy"] = pull_policy(container)
    _fill(container, {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
    _add(container, {"resources": {}})
    for port in container.get("ports") or []:
        _fill(port, {"protocol": "TCP"})
    for one in container.get("env") or []:
        _field_ref(one.get("valueFrom") or {})
    for name in _PROBES:
        if container.get(name):
            _probe(container[name])
    for handler in (container.get("lifecycle") or {}).values():
        if isinstance(handler, dict):
            _http(handler)
    if container.get("securityContext"):
        _add(container["securityContext"], {"procMount": "Default"})


def _probe(probe: Json) -> None:
    _fill(probe, {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3})
    _http(probe)
    if probe.get("grpc"):
        _add(probe["grpc"], {"service": ""})


def _http(handler: Json) -> None:
    if handler.get("httpGet"):
        _fill(handler["httpGet"], {"path": "/", "scheme": "HTTP"})


def _volume(volume: Json) -> None:
    if not any(value is not None for key, value in volume.items() if key != "name"):
        volume["emptyDir"] = {}
    for kind in ("secret", "configMap", "downwardAPI", "projected"):
        if volume.get(kind) is not None:
            _add(volume[kind], {"defaultMode": _MODE})
    if volume.get("hostPath"):
        _add(volume["hostPath"], {"type": ""})
    if volume.get("image"):
        source = volume["image"]
        given = {"image": source.get("reference") or "", "imagePullPolicy": source.get("pullPolicy")}
        source["pullPolicy"] = pull_policy(given)
    for items in _downward_items(volume):
        for item in items:
            _field_ref(item)
    for source in (volume.get("projected") or {}).get("sources") or []:
        if source.get("serviceAccountToken"):
            _add(source["serviceAccountToken"], {"expirationSeconds": _TOKEN_LIFE})


def _downward_items(volume: Json) -> Iterator[list[Json]]:
    yield (volume.get("downwardAPI") or {}).get("items") or []
    for source in (volume.get("projected") or {}).get("sources") or []:
        yield (source.get("downwardAPI") or {}).get("items") or []


def _field_ref(holder: Json) -> None:
    if holder.get("fieldRef"):
        _fill(holder["fieldRef"], {"apiVersion": "v1"})


def _requests(container: Json, host_network: bool) -> None:
    limits = container["resources"].get("limits")
    if limits:
        container["resources"]["requests"] = {**limits, **(container["resources"].get("requests") or {})}
    for port in container.get("ports") or []:
        if host_network:
            _fill(port, {"hostPort": port.get("containerPort") or 0})


def _pod_requests(raw: Json) -> None:
    """Where a pod has only limits of its own, its requests: those of the containers, or else the limits."""
    stated = raw["spec"].get("resources") or {}
    limits = stated.get("limits")
    if not limits:
        return
    requests = dict(stated.get("requests") or {})
    containers = demand.pod_requests(Pod({**raw, "spec": {**raw["spec"], "resources": None, "overhead": None}}))
    for name, limit in limits.items():
        asked = containers.get(name)
        if name in requests or (asked and name.startswith(demand.HUGEPAGES_PREFIX)):
            continue
        requests[name] = quantity.format_exact(asked) if asked else limit
    raw["spec"]["resources"] = {**stated, "requests": requests}


def _fill(holder: Json, given: Json) -> None:
    """Fields whose zero value means the same to the API as no value."""
    for name, value in given.items():
        if not holder.get(name):
            holder[name] = value


def _add(holder: Json, given: Json) -> None:
    """Fields whose zero value is a value."""
    for name, value in given.items():
        if holder.get(name) is None:
            holder[name] = value
