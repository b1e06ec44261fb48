"""What is asked of a container by a probe, ready to be carried out, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ProbeKind(Enum):
    """The value is the word in events."""

    STARTUP = "Startup"
    READINESS = "Readiness"
    LIVENESS = "Liveness"

    @property
    def field(self) -> str:
        """Its name in a container's spec."""
        return f"{self.value.lower()}Probe"


@dataclass(frozen=True, slots=True)
class ExecAsk:
    """A command in the container."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HttpAsk:
    """A GET. `target`: path and query, escaped."""

    scheme: str
    host: str
    port: int
    target: str
    headers: tuple[tuple[str, str], ...]

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.target}"


@dataclass(frozen=True, slots=True)
class TcpAsk:
    """A connection that is opened and closed."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class GrpcAsk:
    """grpc.health.v1.Health/Check."""

    host: str
    port: int
    service: str
    tls: bool = False


Ask = ExecAsk | HttpAsk | TcpAsk | GrpcAsk


class Verdict(Enum):
    """WARNING counts as success; ERROR says nothing about the container (the probe itself could not be made)."""

    SUCCESS = "success"
    WARNING = "warning"
    FAILURE = "failure"
    ERROR = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attempt of one probe; `output` is for people."""

    verdict: Verdict
    output: str = ""


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """How many attempts there were, and the seconds from asking to the answer: of all together, of the longest."""

    runs: int = 0
    seconds: float = 0.0
    worst: float = 0.0


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The newest answer of one probe of a running container, and since when it has been the same.

    `at`, `since` in wall seconds; `times` equal answers in a row, of which it takes `threshold`. `outcome` None: none
    yet. `period` in seconds; `cost`: of all attempts since this agent watches the container.
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
