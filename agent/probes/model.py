"""Requests of probes, ready to be sent, and their outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from agent.common.model.binding import gate


@dataclass(frozen=True, slots=True)
class ProbeGates:
    """Fields of probes that a kubelet reads only with a feature gate.

    `http2`: httpGet.protocol HTTP2; `grpc_tls`: grpc.mode TLS.
    """

    http2: Annotated[bool, gate("H2CContainerProbe")] = False
    grpc_tls: Annotated[bool, gate("GRPCContainerProbeTLS")] = False


class ProbeKind(Enum):
    """The value is the word that events use."""

    STARTUP = "Startup"
    READINESS = "Readiness"
    LIVENESS = "Liveness"

    @property
    def field(self) -> str:
        """Its name in a container's spec."""
        return f"{self.value.lower()}Probe"


Key = tuple[str, str, ProbeKind]  # which probe: pod UID, container id, kind


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """A command in the container."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A GET. `target`: path and query, escaped; `http2`: by HTTP/2 without TLS."""

    scheme: str
    host: str
    port: int
    target: str
    headers: tuple[tuple[str, str], ...]
    http2: bool = False

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.target}"


@dataclass(frozen=True, slots=True)
class TcpRequest:
    """A TCP connection that is opened and closed."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class GrpcRequest:
    """grpc.health.v1.Health/Check."""

    host: str
    port: int
    service: str
    tls: bool = False


ProbeRequest = ExecRequest | HttpRequest | TcpRequest | GrpcRequest


class Verdict(Enum):
    """WARNING counts as success. ERROR says nothing about the container: the probe could not be made."""

    SUCCESS = "success"
    WARNING = "warning"
    FAILURE = "failure"
    ERROR = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one attempt; `output` is for people."""

    verdict: Verdict
    output: str = ""


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """Number of attempts, and their duration in seconds: the total and the longest."""

    runs: int = 0
    seconds: float = 0.0
    worst: float = 0.0


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The newest answer of one probe of a running container, and since when it has been the same.

    `at` and `since` are wall seconds, `period` is in seconds. `times` answers in a row were equal; the verdict changes
    after `threshold`. `outcome` is None before the first answer. `cost` covers all attempts of this agent.
    """

    container: str
    kind: ProbeKind
    outcome: Outcome | None
    at: float
    since: float
    times: int
    threshold: int
    period: float
    cost: ProbeCost = ProbeCost()

    @property
    def fails(self) -> bool:
        """Whether the newest answer is a bad one; False before the first."""
        return self.outcome is not None and self.outcome.verdict in (Verdict.FAILURE, Verdict.ERROR)
