"""A daemon that is told to trace: its spans reach a real collector, and are counted; the flags that tell it."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from nodelib.clock import SystemClock
from nodelib.errors import Invalid
from nodelib.tasks import Supervisor
from nodelib.traces.daemon import start_tracing
from nodelib.traces.sampling import ALL
from nodelib.traces.settings import TracingSettings, delay
from nodelib.traces.steps import step
from policy.settings import load_settings as policy_settings
from proxy.config.settings import load_settings as proxy_settings
from tests.fakes.clock import FakeClock, settle
from tests.fakes.collector import collector
from tests.waiting import until


async def test_spans_of_a_daemon_that_ends_reach_the_collector() -> None:
    registry = CollectorRegistry()
    async with collector() as there:
        async with Supervisor("x") as supervisor:
            settings = TracingSettings(there.endpoint, ALL)
            tracer = start_tracing(settings, "kube-proxy", "node1", supervisor, registry, SystemClock())
            with tracer.begin("syncProxyRules") as span, step("plan"):
                assert span is not None
                span.attributes["nodewright.services"] = 3
        (root,) = there.named("syncProxyRules")
        (part,) = there.named("plan")
    assert (part["trace_id"], part["parent_span_id"]) == (root["trace_id"], root["span_id"])
    assert root["attributes"] == {"nodewright.services": 3}
    assert there.resources[0]["service.name"] == "kube-proxy"
    assert there.resources[0]["k8s.node.name"] == there.resources[0]["service.instance.id"] == "node1"
    assert registry.get_sample_value("nodewright_traces_spans_exported_total") == 2


async def test_the_environment_of_a_daemon_says_how_long_its_spans_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    clock = FakeClock()
    async with collector() as there, Supervisor("x") as supervisor:
        tracer = start_tracing(
            TracingSettings(there.endpoint, ALL), "kube-proxy", "node1", supervisor, CollectorRegistry(), clock
        )
        await settle()
        with tracer.begin("syncProxyRules"):
            pass
        await clock.advance(0.3)
        await until(lambda: there.named("syncProxyRules"))


@pytest.mark.parametrize(
    ("given", "seconds"), [("", 10), ("200", 0.2), ("5000", 5), ("0", 10), ("-1", 10), ("1s", 10), ("9" * 5000, 10)]
)
def test_opentelemetrys_variable_counts_milliseconds(given: str, seconds: float) -> None:
    assert delay({"OTEL_BSP_SCHEDULE_DELAY": given}, 10) == seconds
    assert delay({}, 10) == 10


FLAGS = ["--tracing-endpoint=http://c:4318", "--tracing-sampling-rate-per-million=5"]


def test_both_daemons_take_the_flags() -> None:
    wanted = TracingSettings("http://c:4318", 5)
    assert proxy_settings(FLAGS).tracing == policy_settings(["--kubeconfig=k", *FLAGS]).tracing == wanted
    assert proxy_settings([]).tracing == policy_settings(["--kubeconfig=k"]).tracing == TracingSettings()


@pytest.mark.parametrize(
    "flag",
    [
        "--tracing-endpoint=ftp://c", "--tracing-endpoint=http://", "--tracing-endpoint=a b",
        "--tracing-sampling-rate-per-million=-1", "--tracing-sampling-rate-per-million=1000001",
        "--tracing-sampling-rate-per-million=all",
    ],
)  # fmt: skip
def test_what_cannot_be_obeyed_is_refused_by_its_name(flag: str) -> None:
    for load in (proxy_settings, policy_settings):
        with pytest.raises(Invalid, match="--tracing-"):
            load(["--kubeconfig=k", flag])
