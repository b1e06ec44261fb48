"""Probes: which request to send, when to send it, and what the answers mean for the container.

Follows pkg/kubelet/prober (worker.go, prober.go) and pkg/probe. Two cases are faster than upstream, without counting
anything that upstream would not count: a startup probe is already tried during its first period, where failures do not
count, and a readiness probe that has not succeeded yet is retried sooner than its period (upstream does that at each
sync of the pod).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from agent.common.model.pods import Pod, ProbeState
from agent.containers.plan.expand import Budget, expand_all
from agent.probes.model import (
    ExecRequest,
    GrpcRequest,
    HttpRequest,
    Outcome,
    ProbeAnswer,
    ProbeCost,
    ProbeGates,
    ProbeKind,
    ProbeRequest,
    TcpRequest,
    Verdict,
)
from nodelib.errors import Invalid
from nodelib.json_values import Json
from nodelib.text_numbers import is_number
from nodelib.version import KUBERNETES_MINOR

USER_AGENT = f"kube-probe/{KUBERNETES_MINOR}"
FIELDS = {
    ProbeKind.STARTUP: "startupProbe",
    ProbeKind.READINESS: "readinessProbe",
    ProbeKind.LIVENESS: "livenessProbe",
}
# Requests are put together for each attempt, up to three a second of each container. What references make of a command:
# no kernel takes a longer argument. No server takes so many headers.
_MOST_COMMAND, _LONG_COMMAND = 128 * 1024, 16 * 1024
_MOST_ARGUMENTS, _MOST_HEADERS, _LONGEST_PATH = 4096, 1000, 16 * 1024
_FIRST_RETRY = 0.2  # seconds; doubled each time until the period is reached
_SOON = 0.25  # part of a period in which a started agent probes the containers that ran before it
_RESTART_GRACE = 10.0  # seconds; a container that started this long before the agent ran before it


@dataclass(frozen=True, slots=True)
class Spec:
    """One probe of one container with its defaults. Times in seconds."""

    kind: ProbeKind
    action: Json
    initial_delay: float
    period: float
    timeout: float
    successes: int
    failures: int


@dataclass(frozen=True, slots=True)
class Track:
    """What one probe has found so far about one container id.

    `verdict` is None until it is decided. `last` is the newest answer and `run` how often it came in a row. `tries`
    counts attempts since the container started. `held`: no more attempts for this container id (upstream's onHold).
    """

    verdict: bool | None = None
    last: bool | None = None
    run: int = 0
    tries: int = 0
    held: bool = False


def specs(container: Json) -> tuple[Spec, ...]:
    """The probes of a container, the startup probe first."""
    return tuple(_spec(kind, container[name]) for kind, name in FIELDS.items() if container.get(name))


def initial(spec: Spec, known: Json | None) -> Track:
    """The track of a container seen for the first time by this agent.

    `known` is its ContainerStatus in the API if it has the same container id. It holds until a probe shows otherwise,
    even for a young container, because only an earlier agent can have written it.
    """
    if known is None:
        return Track()
    if spec.kind is ProbeKind.STARTUP:
        return Track(verdict=True, held=True) if known.get("started") else Track()
    if spec.kind is ProbeKind.READINESS:
        return Track(verdict=True) if known.get("ready") else Track()
    return Track()


def was_before(started_at: float, agent_started: float) -> bool:
    """Whether a container ran before this agent started; both times in steady seconds."""
    return started_at < agent_started - _RESTART_GRACE


def record(track: Track, spec: Spec, success: bool, *, counted: bool = True) -> Track:
    """Add an answer. The verdict changes when equal answers in a row reach the threshold."""
    if not success and not counted:
        return replace(track, tries=track.tries + 1)
    run = track.run + 1 if track.last is success else 1
    fresh = replace(track, last=success, run=run, tries=track.tries + 1)
    if run < (spec.successes if success else spec.failures):
        return fresh
    fresh = replace(fresh, verdict=success)
    # A startup probe is done with either verdict; after a failed liveness probe the container is killed.
    if spec.kind is ProbeKind.STARTUP or (spec.kind is ProbeKind.LIVENESS and not success):
        return replace(fresh, held=True, run=0)
    return fresh


def stop_liveness_and_startup(track: Track, spec: Spec) -> Track:
    """The pod is being deleted: startup and liveness probes end as successful, readiness continues."""
    return track if spec.kind is ProbeKind.READINESS else replace(track, verdict=True, held=True)


def wanted(spec: Spec, track: Track, started: bool) -> bool:
    """Whether to probe now: the startup probe until the container has started, the others afterwards."""
    return not track.held and (spec.kind is ProbeKind.STARTUP) is not started


def first_counted(spec: Spec, started_at: float) -> float:
    """The time of upstream's first attempt: readiness at once, the others after a period, never before the delay."""
    if spec.kind is ProbeKind.READINESS:
        return started_at + spec.initial_delay
    return started_at + max(spec.initial_delay, spec.period)


def first_due(spec: Spec, started_at: float, now: float, *, restarted: bool, jitter: float) -> float:
    """When to probe first. `jitter` (0 to 1) spreads the probes of containers that ran before the agent.

    Those are probed soon, because nobody has probed them meanwhile; lag() then spreads them over the whole period.
    """
    if restarted:
        return max(now + jitter * _SOON * min(spec.period, 10.0), started_at + spec.initial_delay)
    if spec.kind is ProbeKind.STARTUP:
        return max(now, started_at + spec.initial_delay)
    return max(now, first_counted(spec, started_at))


def next_due(spec: Spec, track: Track, started_at: float, began: float, now: float) -> float:
    """When to probe again after an attempt that began at `began`."""
    regular = max(began + spec.period, now)
    early = began + min(spec.period, _FIRST_RETRY * float(1 << max(0, min(track.tries - 1, 20))))
    if spec.kind is ProbeKind.STARTUP and began < first_counted(spec, started_at):
        return max(now, min(early, first_counted(spec, started_at)))
    if spec.kind is ProbeKind.READINESS and track.verdict is None and spec.successes == 1:
        return max(now, min(early, regular))
    return regular


def lag(spec: Spec, track: Track, *, restarted: bool, jitter: float) -> float:
    """Extra seconds before the second attempt of a probe whose container ran before the agent.

    They spread such probes over a whole period from then on (upstream spreads the first attempt over a period).
    """
    if not restarted or track.tries != 1 or track.verdict is None:  # without a verdict it is retried soon
        return 0.0
    return jitter * (1 - _SOON) * min(spec.period, 10.0)


def is_counted(spec: Spec, started_at: float, began: float) -> bool:
    """Whether a failed attempt at `began` counts: not before upstream's first attempt."""
    return began >= first_counted(spec, started_at)


def is_reported(spec: Spec, track: Track, counted: bool) -> bool:
    """Whether a failure gets an Event: early retries of a readiness probe do not, except the first."""
    return counted and (spec.kind is not ProbeKind.READINESS or track.verdict is not None or track.tries == 0)


def state(tracks: Mapping[ProbeKind, Track]) -> ProbeState:
    """The state of a container from the tracks of its probes."""
    startup, readiness = tracks.get(ProbeKind.STARTUP), tracks.get(ProbeKind.READINESS)
    liveness = tracks.get(ProbeKind.LIVENESS)
    started = startup is None or startup.verdict is True
    failed = [
        kind.value
        for kind, track in ((ProbeKind.STARTUP, startup), (ProbeKind.LIVENESS, liveness))
        if track is not None and track.verdict is False
    ]
    return ProbeState(
        started=started,
        ready=started and (readiness is None or readiness.verdict is True),
        live=not failed,
        message=f"{failed[0]} probe failed" if failed else "",
    )


def unanswered(spec: Spec, container: str, started_at: float) -> ProbeAnswer:
    """The placeholder for a probe before its first answer; `started_at` in wall seconds."""
    threshold = spec.successes if spec.kind is ProbeKind.READINESS else spec.failures
    return ProbeAnswer(container, spec.kind, None, started_at, started_at, 0, threshold, spec.period)


def answered(
    before: ProbeAnswer | None, spec: Spec, container: str, outcome: Outcome, now: float, took: float = 0.0
) -> ProbeAnswer:
    """Add an answer to those before it that had the same verdict; `took` in seconds."""
    past = before.cost if before is not None else ProbeCost()
    cost = ProbeCost(past.runs + 1, past.seconds + took, max(past.worst, took))
    same = before is not None and before.outcome is not None and before.outcome.verdict is outcome.verdict
    since, times = (before.since, before.times + 1) if before is not None and same else (now, 1)
    threshold = spec.successes if outcome.verdict in (Verdict.SUCCESS, Verdict.WARNING) else spec.failures
    return ProbeAnswer(container, spec.kind, outcome, now, since, times, threshold, spec.period, cost)


def is_costly(request: ProbeRequest) -> bool:
    """Whether it takes much more of the node than a connection: a command, or HTTP/2 that Python decodes."""
    by_http2 = isinstance(request, HttpRequest) and request.http2
    return by_http2 or isinstance(request, ExecRequest) or (isinstance(request, GrpcRequest) and request.tls)


def request_of(spec: Spec, container: Json, ip: str, gates: ProbeGates | None = None) -> ProbeRequest:
    """The request to send. Raises Invalid for an unknown port name, or a pod without an address."""
    action, gates = spec.action, gates or ProbeGates()
    if action.get("exec") is not None:
        env = {
            entry["name"]: entry.get("value", "") for entry in container.get("env") or [] if "valueFrom" not in entry
        }
        command = action["exec"].get("command") or []
        _check_count(len(command), _MOST_ARGUMENTS, "words of a command")
        return ExecRequest(tuple(expand_all(command, env, Budget(_MOST_COMMAND))))
    if action.get("httpGet") is not None:
        request = _http(action["httpGet"], container, ip)
        return replace(request, http2=gates.http2 and action["httpGet"].get("protocol") == "HTTP2")
    if action.get("tcpSocket") is not None:
        asked = action["tcpSocket"]
        return TcpRequest(_host(asked.get("host"), ip), _port(asked["port"], container))
    if action.get("grpc") is not None:
        asked = action["grpc"]
        return GrpcRequest(
            _host(None, ip),
            int(asked["port"]),
            asked.get("service") or "",
            gates.grpc_tls and asked.get("mode") == "TLS",
        )
    raise Invalid(f"missing probe handler for container {container['name']}", step="probe")


def is_kept(spec: Spec, found: ProbeRequest | Outcome) -> bool:
    """Whether the next attempt sends the same as this one, which took long to work out. What is short stays as written:
    with the values of its variables, it may have 128 KiB for each of the thousands of probes of a pod."""
    if (asked := spec.action.get("exec")) is None:
        return False
    return isinstance(found, Outcome) or sum(map(len, asked.get("command") or ())) > _LONG_COMMAND


def _http(asked: Json, container: Json, ip: str) -> HttpRequest:
    headers = [(entry["name"], entry.get("value", "")) for entry in asked.get("httpHeaders") or []]
    _check_count(len(headers), _MOST_HEADERS, "httpHeaders")
    given = {name.lower(): value for name, value in headers}
    if "user-agent" not in given:
        headers.append(("User-Agent", USER_AGENT))
    if "accept" not in given:
        headers.append(("Accept", "*/*"))
    elif not given["accept"]:
        headers = [(name, value) for name, value in headers if name.lower() != "accept"]
    path = asked.get("path") or "/"
    _check_count(len(path), _LONGEST_PATH, "characters of a path")
    target = quote(path.partition("#")[0], safe="/%:?&=+,;@!$'()*~-._[]")
    return HttpRequest(
        scheme=str(asked.get("scheme") or "HTTP").lower(),
        host=_host(asked.get("host"), ip),
        port=_port(asked["port"], container),
        target=target if target.startswith("/") else f"/{target}",
        headers=tuple(headers),
    )


def _check_count(count: int, most: int, what: str) -> None:
    if count > most:
        raise Invalid(f"{count} {what} are more than {most}", step="probe", action="Use fewer in the probe.")


def _host(given: str | None, ip: str) -> str:
    if not given and not ip:
        raise Invalid("the pod has no address yet", step="probe")
    return given or ip


def _port(port: Any, container: Json) -> int:
    if isinstance(port, str) and not is_number(port):
        for entry in container.get("ports") or []:
            if entry.get("name") == port:
                return int(entry["containerPort"])
        raise Invalid(f'port "{port}" not found', step="probe", action="Name a port of the container.")
    if not 0 < int(port) < 65536:
        raise Invalid(f"invalid port number: {port}", step="probe")
    return int(port)


def _spec(kind: ProbeKind, probe: Json) -> Spec:
    """Apply API defaults, for static pods that the API server has not seen."""
    return Spec(
        kind=kind,
        action=probe,
        initial_delay=float(probe.get("initialDelaySeconds") or 0),
        period=float(probe.get("periodSeconds") or 10),
        timeout=float(probe.get("timeoutSeconds") or 1),
        successes=int(probe.get("successThreshold") or 1),
        failures=int(probe.get("failureThreshold") or 3),
    )


def known_statuses(pod: Pod) -> Iterator[tuple[str, Json]]:
    """(container id, ContainerStatus) pairs as last seen in the API."""
    for field in ("containerStatuses", "initContainerStatuses"):
        for status in pod.status.get(field) or []:
            container_id = str(status.get("containerID") or "").rpartition("//")[2]
            if container_id:
                yield container_id, status
