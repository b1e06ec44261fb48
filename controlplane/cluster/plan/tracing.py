"""Who traces with a node's kubelet (`tracing` of its KubeletConfiguration): containerd, the proxy, the policies. Pure.

containerd is told by environment variables (docs/tracing.md there). It traces only calls that a sampled span of the
kubelet makes, so that the rate is the kubelet's. Our own daemons have flags (nodelib/traces/settings.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from controlplane.cluster.model import Cluster, Node
from controlplane.cluster.plan.daemon_configs import kubelet_config
from nodelib.json_values import Json, object_or_empty
from nodelib.traces import endpoints, sampling
from nodelib.traces.settings import ENDPOINT, RATE

_ENDPOINT, _PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
_GRPC_ONLY = ("dns:", "unix:", "unix-abstract:")  # targets that containerd's exporter does not take


def daemon_flags(cluster: Cluster, node: Node) -> tuple[str, ...]:
    """For our proxy and policy daemon of a node; none where the kubelet does not trace."""
    return flags_of(_asked(cluster, node))


def flags_of(tracing: object) -> tuple[str, ...]:
    """The same from `tracing` of any KubeletConfiguration. What a kubelet refuses asks for nothing: it says so itself,
    and does not take a node's Services and policies down with it."""
    asked = object_or_empty(tracing)
    rate, endpoint = asked.get("samplingRatePerMillion"), asked.get("endpoint") or ""
    if not isinstance(rate, int) or isinstance(rate, bool) or not 0 < rate <= sampling.ALL:
        return ()
    if not isinstance(endpoint, str) or (endpoint and endpoints.problem(endpoint)):
        return ()
    return (f"--{RATE}={rate}", *([f"--{ENDPOINT}={endpoint}"] if endpoint else []))


def _asked(cluster: Cluster, node: Node) -> Json:
    return object_or_empty(json.loads(kubelet_config(cluster, node)).get("tracing"))


def runtime_environment(cluster: Cluster, node: Node) -> Mapping[str, str]:
    """Variables for containerd; empty where it does not trace."""
    asked = _asked(cluster, node)
    endpoint = asked.get("endpoint") or endpoints.DEFAULT
    if not asked.get("samplingRatePerMillion") or endpoint.startswith(_GRPC_ONLY):
        return {}
    http = endpoints.is_http(endpoint)
    return {
        _ENDPOINT: endpoints.traces_url(endpoint) if http else f"http://{endpoint}",
        _PROTOCOL: "http/protobuf" if http else "grpc",
        "OTEL_SERVICE_NAME": "containerd",
        "OTEL_RESOURCE_ATTRIBUTES": f"host.name={node.name},service.instance.id={node.name}",
        "OTEL_TRACES_SAMPLER": "parentbased_always_off",
    }
