"""The flags by which a daemon beside the kubelet is told to trace: the two fields of upstream's TracingConfiguration.

KubeProxyConfiguration has no such field, and its upstream reader knows none, so they are flags, which stand beside a
configuration file.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodelib.errors import Invalid
from nodelib.traces import endpoints, sampling

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


def _bad(program: str, message: str) -> Invalid:
    return Invalid(message, obj=program, step="read the command line", action="Correct the flag, or leave it out.")
