"""Which variables and plugins make containerd trace with its kubelet."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan import daemon_configs
from controlplane.cluster.plan.components import Tools, policy, proxy
from controlplane.cluster.plan.tracing import flags_of, runtime_environment
from controlplane.config.model import Custom
from controlplane.host.plan.join import tracing_flags
from controlplane.supervisor.model import Program
from nodelib.json_values import Json

GRPC = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://10.0.0.9:4317", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}
HTTP = {
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://10.0.0.9:4318/v1/traces",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
}
LOCAL = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4317", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}
ALL = 1_000_000


@pytest.mark.parametrize(
    ("tracing", "expected"),
    [
        ({"endpoint": "10.0.0.9:4317", "samplingRatePerMillion": ALL}, GRPC),
        ({"endpoint": "http://10.0.0.9:4318", "samplingRatePerMillion": 1}, HTTP),
        ({"samplingRatePerMillion": 1}, LOCAL),
        ({"endpoint": "10.0.0.9:4317"}, {}),
        ({"endpoint": "unix:///run/otel.sock", "samplingRatePerMillion": ALL}, {}),
        (None, {}),
    ],
    ids=["grpc", "http", "the default endpoint", "no rate", "a target of gRPC alone", "no tracing"],
)
def test_containerd_traces_what_its_kubelet_samples(tracing: Json | None, expected: dict[str, str]) -> None:
    custom = Custom(kubelet={"tracing": tracing} if tracing else {})
    cluster = Cluster("lab", "10.89.3.0/24", Options(custom=custom))
    found = runtime_environment(cluster, cluster.nodes[0])
    assert {key: value for key, value in found.items() if key.startswith("OTEL_EXPORTER")} == expected
    assert found.get("OTEL_TRACES_SAMPLER", "parentbased_always_off") == "parentbased_always_off"
    assert bool(found) == bool(expected)


@pytest.mark.parametrize("traced", [True, False])
def test_the_plugins_are_on_only_where_it_traces(traced: bool) -> None:
    config = tomllib.loads(daemon_configs.containerd_config(restrict_oom_score_adj=False, durable=True, traced=traced))
    off = [one for one in config["disabled_plugins"] if "tracing" in one]
    assert len(off) == (0 if traced else 2)
    assert "io.containerd.nri.v1.nri" in config["disabled_plugins"]


RATE, ENDPOINT = "--tracing-sampling-rate-per-million", "--tracing-endpoint"


@pytest.mark.parametrize("program", [proxy, policy])
def test_our_daemons_of_a_node_trace_where_its_kubelet_does(program: Callable[..., Program]) -> None:
    tools = Tools({}, "/venv/python", "/project")
    for tracing, flags in (
        ({"endpoint": "10.0.0.9:4317", "samplingRatePerMillion": 5}, {f"{RATE}=5", f"{ENDPOINT}=10.0.0.9:4317"}),
        ({"samplingRatePerMillion": 5}, {f"{RATE}=5"}),
        ({"endpoint": "10.0.0.9:4317"}, set()),
    ):
        cluster = Cluster("lab", "10.89.3.0/24", Options(custom=Custom(kubelet={"tracing": tracing})))
        argv = program(cluster, cluster.nodes[0], tools).argv
        assert {one for one in argv if "tracing" in one} == flags


@pytest.mark.parametrize(
    "tracing",
    [
        None, [], "x", {"samplingRatePerMillion": "5"}, {"samplingRatePerMillion": True},
        {"samplingRatePerMillion": -1},
        {"samplingRatePerMillion": ALL + 1}, {"samplingRatePerMillion": 5, "endpoint": "ftp://x"},
        {"samplingRatePerMillion": 5, "endpoint": 7},
    ],
)  # fmt: skip
def test_what_a_kubelet_refuses_takes_no_proxy_with_it(tracing: object) -> None:
    assert flags_of(tracing) == ()


def test_a_node_that_joins_traces_as_the_cluster_s_nodes_do() -> None:
    asked = "tracing: {endpoint: 'c:4317', samplingRatePerMillion: 7}"
    assert tracing_flags(asked) == (f"{RATE}=7", f"{ENDPOINT}=c:4317")
    assert tracing_flags("kind: KubeletConfiguration") == tracing_flags("a: [") == ()
