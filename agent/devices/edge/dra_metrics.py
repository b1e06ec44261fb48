"""Metrics of resource claims and their drivers, with upstream's names (pkg/kubelet/metrics, cm/dra/claiminfo.go)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from agent.common.model.errors import PluginError
from agent.devices.model.dra import ClaimState

_ANY = "<any>"
_BUCKETS = tuple(0.1 * 400 ** (at / 14) for at in range(15))  # seconds: 0.1 to 40, as a call may take 45
_MOST_DRIVERS = 100  # names in the series of calls; a driver that registers with ever new names must not fill memory
_OTHERS = "<others>"


class DraMetrics:
    """Durations, counted as they happen, and a prometheus_client collector of the claims that are in use."""

    def __init__(self, registry: CollectorRegistry, claims: Callable[[], Collection[ClaimState]]) -> None:
        self._claims = claims
        self._drivers: set[str] = set()
        self._operations = Histogram(
            "dra_operations_duration_seconds",
            "Latency histogram in seconds for the duration of handling all ResourceClaims referenced by a pod when the "
            "pod starts or stops. Identified by the name of the operation (PrepareResources or UnprepareResources) and "
            "separated by the success of the operation.",
            ("operation_name", "is_error"),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._calls = Histogram(
            "dra_grpc_operations_duration_seconds",
            "Duration in seconds of the DRA gRPC operations",
            ("driver_name", "method_name", "grpc_status_code"),
            buckets=_BUCKETS,
            registry=registry,
        )
        registry.register(self)

    @contextmanager
    def operation(self, name: str) -> Iterator[None]:
        """Time what is done for all claims of a pod: "PrepareResources" or "UnprepareResources"."""
        began, failed = time.monotonic(), "true"
        try:
            yield
            failed = "false"
        finally:
            self._operations.labels(name, failed).observe(time.monotonic() - began)

    @contextmanager
    def call(self, driver: str, method: str) -> Iterator[None]:
        """Time one call of a driver; `method` as gRPC writes it."""
        began, code = time.monotonic(), "CANCELLED"
        try:
            yield
            code = "OK"
        except PluginError as error:
            code = error.code
            raise
        finally:
            took = time.monotonic() - began
            self._calls.labels(self._label(driver), method, _as_go_writes(code)).observe(took)

    def _label(self, driver: str) -> str:
        if driver not in self._drivers:
            if len(self._drivers) >= _MOST_DRIVERS:
                return _OTHERS
            self._drivers.add(driver)
        return driver

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        prepared = [one for one in list(self._claims()) if one.prepared]  # a scrape may be in a thread
        gauge = GaugeMetricFamily(
            "dra_resource_claims_in_use",
            "The number of ResourceClaims that are currently in use on the node, by driver name (driver_name label "
            "value) and across all drivers (special value <any> for driver_name). The sum of all by-driver counts is "
            "not the total number, as a ResourceClaim may use devices of several drivers.",
            labels=["driver_name"],
        )
        gauge.add_metric([_ANY], len(prepared))
        for driver, count in Counter(name for one in prepared for name in one.drivers).items():
            gauge.add_metric([driver], count)
        yield gauge


def _as_go_writes(code: str) -> str:
    """DEADLINE_EXCEEDED as DeadlineExceeded (codes.Code.String)."""
    if code == "CANCELLED":
        return "Canceled"
    return code if code == "OK" else code.title().replace("_", "")
