"""containerd's own spans, on nodes whose kubelet is told to trace (`tracing` of its KubeletConfiguration). Pure.

containerd is told by environment variables (docs/tracing.md there). It traces only calls that a sampled span of the
kubelet makes, so that the rate is the kubelet's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from controlplane.cluster.model import Cluster, Node
from controlplane.cluster.plan.node_files import kubelet_config
from nodelib.traces import endpoints

_ENDPOINT, _PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
_GRPC_ONLY = ("dns:", "unix:", "unix-abstract:")  # targets that containerd's exporter does not take


def runtime_environment(cluster: Cluster, node: Node) -> Mapping[str, str]:
    """Variables for containerd; empty where it does not trace."""
    asked = json.loads(kubelet_config(cluster, node)).get("tracing") or {}
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
