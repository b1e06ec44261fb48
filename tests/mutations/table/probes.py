"""Probes of each kind, and what their answers do."""

from __future__ import annotations

from tests.mutations.model import Mutation

_TESTS = ("unit/agent/probes",)
_PLAN, _EDGE = "agent/probes/plan.py", "agent/probes/edge.py"

TABLE = (
    Mutation(
        "probe-http-status", "an httpGet probe fails with a status outside 200 to 399",
        _EDGE, "    if 200 <= status < 400:", "    if status:", _TESTS,
    ),
    Mutation(
        "probe-http-headers", "httpHeaders of a probe",
        _PLAN, 'for entry in asked.get("httpHeaders") or []]', "for entry in ()]", _TESTS,
    ),
    Mutation(
        "probe-http-redirect", "a redirect to another host is a warning, not followed",
        _EDGE, 'if 300 <= status < 400 and location:', "if False:", _TESTS,
    ),
    Mutation(
        "probe-exec", "an exec probe fails with the command",
        _EDGE, "if result.exit_code == 0 else Verdict.FAILURE", "if True else Verdict.FAILURE", _TESTS,
    ),
    Mutation(
        "probe-tcp", "a tcpSocket probe fails when nobody listens",
        _EDGE, "return Outcome(Verdict.FAILURE, _dial_failure(request, error))", "return Outcome(Verdict.SUCCESS)",
        _TESTS,
    ),
    Mutation(
        "probe-grpc", "a grpc probe fails when the service does not serve",
        "agent/probes/grpc_check.py", "if status != _SERVING:", "if False:", _TESTS,
    ),
    Mutation(
        "probe-grpc-service", "the service name of a grpc probe",
        _PLAN, 'asked.get("service") or ""', '""', _TESTS,
    ),
    Mutation(
        "probe-grpc-tls", "gRPC probes with TLS",
        _EDGE, "        if request.tls:", "        if False:", _TESTS,
    ),
    Mutation(
        "probe-http2", "HTTP/2 without TLS in probes",
        _EDGE, "if request.http2 else self._follow(request, pod)", "if False else self._follow(request, pod)", _TESTS,
    ),
    Mutation(
        "probe-named-port", "a probe's port by its name",
        _PLAN, 'if entry.get("name") == port:', "if False:", _TESTS,
    ),
    Mutation(
        "probe-startup-first", "no other probe runs before the startup probe has succeeded",
        _PLAN, "not track.held and (spec.kind is ProbeKind.STARTUP) is not started", "not track.held", _TESTS,
    ),
    Mutation(
        "probe-thresholds", "successThreshold and failureThreshold",
        _PLAN, "if run < (spec.successes if success else spec.failures):", "if False:", _TESTS,
    ),
    Mutation(
        "probe-initial-delay", "initialDelaySeconds",
        _PLAN, 'initial_delay=float(probe.get("initialDelaySeconds") or 0)', "initial_delay=0.0", _TESTS,
    ),
    Mutation(
        "probe-timeout", "timeoutSeconds of a probe",
        _PLAN, 'timeout=float(probe.get("timeoutSeconds") or 1)', "timeout=1.0", _TESTS,
    ),
    Mutation(
        "probe-period", "periodSeconds",
        _PLAN, 'period=float(probe.get("periodSeconds") or 10)', "period=10.0", _TESTS,
    ),
    Mutation(
        "probe-readiness", "a readiness probe decides whether the container is ready",
        _PLAN, "ready=started and (readiness is None or readiness.verdict is True)", "ready=started", _TESTS,
    ),
    Mutation(
        "probe-deleted-pod", "liveness and startup probes end when the pod is deleted",
        _PLAN, "replace(track, verdict=True, held=True)\n\n\ndef wanted", "track\n\n\ndef wanted", _TESTS,
    ),
    Mutation(
        "probe-events", "the event Unhealthy",
        "agent/probes/work.py", 'self._events.emit(pod.raw, "Warning", reason, message, container=container["name"])',
        "pass", _TESTS,
    ),
    Mutation(
        "probe-metrics", "prober_probe_total",
        "agent/probes/work.py", "*labels[1:], pod.uid).inc()", "*labels[1:], pod.uid)", _TESTS,
    ),
    Mutation(
        "probe-liveness-restarts", "a container that fails its liveness probe is restarted",
        "agent/pods/plan/pod.py", "if state is None or state.live:", "if True:",
        ("unit/agent/pods/test_pod.py", "unit/agent/pods"),
    ),
    Mutation(
        "probe-own-grace", "terminationGracePeriodSeconds of a probe",
        "agent/common/plan/restart.py", '.get("terminationGracePeriodSeconds") if probe else None',
        "if False else None",
        ("unit/agent/pods/test_pod.py", "unit/agent/pods"),
    ),
)  # fmt: skip
