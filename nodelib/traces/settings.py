"""The flags by which a daemon beside the kubelet is told to trace: the two fields of upstream's TracingConfiguration.

KubeProxyConfiguration has no such field, and its upstream reader knows none, so they are flags, which stand beside a
configuration file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from nodelib.errors import Invalid
from nodelib.text import one_line
from nodelib.text_numbers import is_number
from nodelib.traces import endpoints, sampling

log = logging.getLogger(__name__)

DELAY = "OTEL_BSP_SCHEDULE_DELAY"
_LONGEST_DELAY = 3_600_000  # milliseconds
ENDPOINT, RATE = "tracing-endpoint", "tracing-sampling-rate-per-million"
HELP = {
    ENDPOINT: f"where spans are sent by OTLP, as tracing.endpoint of a kubelet; default {endpoints.DEFAULT}",
    RATE: "how many of a million traces are kept, as tracing.samplingRatePerMillion; default 0: nothing is traced",
}


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """Spans go to `endpoint` ("": upstream's default). `per_million` of the traces, 0: none."""

    endpoint: str = ""
    per_million: int = 0


OFF = TracingSettings()


def tracing_settings(endpoint: str, per_million: int, program: str) -> TracingSettings:
    """Raises Invalid, which names the flag."""
    if endpoint and (wrong := endpoints.problem(endpoint)):
        raise _bad(program, f"--{ENDPOINT} {endpoint[:100]}: {wrong}")
    if not 0 <= per_million <= sampling.ALL:
        raise _bad(program, f"--{RATE} {per_million} is not within 0 and {sampling.ALL}")
    return TracingSettings(endpoint, per_million)


def delay(environment: Mapping[str, str], default: float) -> float:
    """How many seconds a span waits for others: OpenTelemetry's variable, in milliseconds, which upstream's kubelet
    obeys too (go.opentelemetry.io/otel/sdk/trace/internal/env). What is no such number is warned of and ignored, as its
    specification asks."""
    given = environment.get(DELAY, "")
    if is_number(given) and 0 < int(given) <= _LONGEST_DELAY:
        return int(given) / 1000
    if given:
        text = "%s=%s is no number of milliseconds up to %d; spans wait %g s for others"
        log.warning(text, DELAY, one_line(given, 100), _LONGEST_DELAY, default)
    return default


def _bad(program: str, message: str) -> Invalid:
    return Invalid(message, obj=program, step="read the command line", action="Correct the flag, or leave it out.")
