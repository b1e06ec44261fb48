"""The life of a pod: hooks, restarts, init containers and sidecars, termination, status, events."""

from __future__ import annotations

from tests.mutations.model import Mutation

_TESTS = ("unit/agent/pods/test_pod.py", "unit/agent/pods/test_pod_worker.py", "unit/agent/pods")
_STATUS = ("unit/agent/pods/test_status.py", *_TESTS)
_RESTARTS = ("unit/agent/common/test_restart.py", *_TESTS)
_POD, _TERMINATION = "agent/pods/plan/pod.py", "agent/pods/plan/termination.py"
_STARTS = "agent/pods/plan/container_starts.py"
_RESTART, _BACKOFF = "agent/common/plan/restart.py", "agent/common/plan/backoff.py"
_START, _HOOKS = "agent/pods/work/steps/start.py", "agent/pods/work/hooks.py"
_TRACING = ("unit/agent/pods/test_tracing.py",)

TABLE = (
    Mutation(
        "hook-post-start", "postStart hooks",
        _START, "            if hook:\n                await", "            if False:\n                await", _TESTS,
    ),
    Mutation(
        "hook-post-start-failure", "a failed postStart hook ends the container",
        _START, "await self._stops.kill(after_failed_hook(memory.pod, step.container, container_id))", "pass", _TESTS,
    ),
    Mutation(
        "hook-post-start-order", "the next container starts after the postStart hook of the one before it",
        _STARTS, 'if (container.get("lifecycle") or {}).get("postStart") and', "if False and", _TESTS,
    ),
    Mutation(
        "hook-pre-stop", "preStop hooks",
        _TERMINATION, "return kill.hook if kill.grace > 0 and", "return None if kill.grace > 0 and", _TESTS,
    ),
    Mutation(
        "hook-pre-stop-grace", "the time of a preStop hook counts as grace",
        _TERMINATION, "return max(grace - int(hook_took), MINIMUM_GRACE)", "return grace", _TESTS,
    ),
    Mutation(
        "hook-sleep", "hooks of the kind sleep",
        _HOOKS, 'await self._sleep(float(hook["sleep"].get("seconds", 0)))', "pass", _TESTS,
    ),
    Mutation(
        "hook-http", "hooks of the kind httpGet",
        _HOOKS, "await self._http.get(url, headers, pod=pod.uid)", "pass", _TESTS,
    ),
    Mutation(
        "hook-exec-failure", "an exec hook fails with the command",
        _HOOKS, "if done.exit_code != 0:", "if False:", _TESTS,
    ),
    Mutation(
        "restart-never", "restartPolicy Never",
        _RESTART, '    if policy == "Never":\n        return False\n', "", _RESTARTS,
    ),
    Mutation(
        "restart-on-failure", "restartPolicy OnFailure",
        _RESTART, 'return policy != "OnFailure" or exit_code != 0', "return True", _RESTARTS,
    ),
    Mutation(
        "restart-container-policy", "a container's own restartPolicy",
        _RESTART, "policy = own or pod.restart_policy", "policy = pod.restart_policy", _RESTARTS,
    ),
    Mutation(
        "restart-rules", "restartPolicyRules",
        _RESTART, 'if rule is not None and rule.get("action") in', 'if False and rule.get("action") in', _RESTARTS,
    ),
    Mutation(
        "restart-rules-not-in", "restartPolicyRules with the operator NotIn",
        _RESTART, 'return inside if codes.get("operator") == "In" else not inside', "return inside", _RESTARTS,
    ),
    Mutation(
        "restart-all-containers", "the action RestartAllContainers",
        _POD, "if restart_all.under_way(pod, seen):", "if False:", _TESTS,
    ),
    Mutation(
        "restart-changed-image", "a container whose image was changed is restarted",
        _POD, "if started_as and started_as != hash_in(pod, container):", "if False:", _TESTS,
    ),
    Mutation(
        "back-off-doubles", "the back-off of restarts doubles",
        _BACKOFF, "BackOff(min(entry.delay * 2, bounds.longest), now)", "BackOff(bounds.first, now)", _TESTS,
    ),
    Mutation(
        "back-off-maximum", "the back-off of restarts has a maximum",
        _BACKOFF, "BackOff(min(entry.delay * 2, bounds.longest), now)", "BackOff(entry.delay * 2, now)", _TESTS,
    ),
    Mutation(
        "back-off-reset", "ten quiet minutes reset the back-off",
        _BACKOFF, "return event_at - entry.updated_at > _QUIET", "return False", _TESTS,
    ),
    Mutation(
        "back-off-maximum-setting", "crashLoopBackOff.maxContainerRestartPeriod",
        "agent/settings.py", '"crashLoopBackOff.maxContainerRestartPeriod",', '"syncFrequency",',
        ("unit/agent/config", "unit/agent/test_derive.py"),
    ),
    Mutation(
        "init-failure", "a pod fails when an init container fails for good",
        "agent/pods/plan/initialization.py", "if restarts(pod, container, latest.exit_code):", "if True:", _TESTS,
    ),
    Mutation(
        "init-order", "init containers run one after the other",
        "agent/pods/plan/initialization.py",
        "    if latest.state is RunState.CREATED:\n        found.starts.insert(0, container)\n    elif",
        "    if latest.state is not RunState.EXITED:\n        _succeeded(following, found)\n    elif", _TESTS,
    ),
    Mutation(
        "sidecar", "init containers with restartPolicy Always are sidecars",
        _RESTART, 'return kind is Kind.INIT and container.get("restartPolicy") == "Always"', "return False", _RESTARTS,
    ),
    Mutation(
        "sidecar-startup", "what follows a sidecar waits for its startup probe",
        "agent/pods/plan/initialization.py", 'if container.get("startupProbe") and', "if False and", _TESTS,
    ),
    Mutation(
        "sidecar-stop-order", "sidecars are stopped after the other containers",
        _TERMINATION, "    if others:\n        return others", "    if alive:\n        return alive", _TESTS,
    ),
    Mutation(
        "sidecar-early-hooks", "preStop hooks of sidecars start as soon as the pod terminates",
        _TERMINATION, "return tuple(PreStop(one.id, one.name, grace, hook) for one, hook in found if hook)",
        "return ()",
        _TESTS,
    ),
    Mutation(
        "sidecar-not-counted", "a pod whose other containers have ended is complete, whatever its sidecars do",
        _POD, "work.all_ended = keep_count == 0", "work.all_ended = False", _TESTS,
    ),
    Mutation(
        "ephemeral-container", "ephemeral containers are started",
        _POD, 'for one in pod.containers(Kind.EPHEMERAL) if seen',
        "for one in pod.containers(Kind.EPHEMERAL) if not seen",
        _TESTS,
    ),
    Mutation(
        "ephemeral-target", "targetContainerName of an ephemeral container",
        "agent/pods/plan/start_inputs.py", "    return found.id", '    return ""', (*_TESTS, "unit/agent/containers"),
    ),
    Mutation(
        "active-deadline", "activeDeadlineSeconds",
        _TERMINATION, "return began + int(seconds) if seconds", "return began + 1e12 if seconds", _TESTS,
    ),
    Mutation(
        "shorter-grace", "a second deletion with a shorter grace",
        _TERMINATION, "grace = min(present.grace, wanted.grace)", "grace = present.grace", _TESTS,
    ),
    Mutation(
        "grace-over-restart", "a restart of the agent gives a terminating pod no new grace",
        "agent/pods/plan/termination_record.py", "since=now.steady - max(0.0, age)", "since=now.steady", _TESTS,
    ),
    Mutation(
        "termination-message", "the message in terminationMessagePath",
        "agent/pods/edge/pod_files.py", 'data = _tail(mount["host_path"], _MESSAGE_BYTES)', 'data = b""', _TESTS,
    ),
    Mutation(
        "termination-message-size", "a termination message has at most 4 KiB",
        "agent/pods/edge/pod_files.py", "_MESSAGE_BYTES = 4096", "_MESSAGE_BYTES = 1 << 20",
        _TESTS,
    ),
    Mutation(
        "termination-message-log", "terminationMessagePolicy FallbackToLogsOnError",
        "agent/pods/edge/pod_files.py", "return _end_of_log(container.log_path) if wants_log", 'return "" if wants_log',
        _TESTS,
    ),
    Mutation(
        "termination-messages-together", "all termination messages of a pod together have at most 12 KiB",
        "agent/pods/plan/container_status.py", "[: _MESSAGES_LIMIT // count]", "", _STATUS,
    ),
    Mutation(
        "readiness-gates", "readinessGates",
        "agent/pods/plan/conditions.py", 'for gate in pod.spec.get("readinessGates") or []:', "for gate in ():", _TESTS,
    ),
    Mutation(
        "disruption-target", "the condition DisruptionTarget of a pod that the node ends",
        "agent/pods/plan/status.py", "given.facts.termination.disrupted and phase in TERMINAL", "False", _TESTS,
    ),
    Mutation(
        "ready-to-start", "the condition PodReadyToStartContainers",
        "agent/pods/plan/conditions.py",
        "    if problem:\n        return _condition(\"PodReadyToStartContainers\", False",
        "    if False:\n        return _condition(\"PodReadyToStartContainers\", False", _TESTS,
    ),
    Mutation(
        "stop-signal-shown", "status.containerStatuses[].stopSignal",
        "agent/pods/plan/container_status.py", "if latest.stop_signal and", "if False and", _STATUS,
    ),
    Mutation(
        "user-shown", "status.containerStatuses[].user",
        "agent/pods/plan/container_status.py", "    if latest.user:", "    if False:", _STATUS,
    ),
    Mutation(
        "observed-generation", "status.observedGeneration",
        "agent/pods/plan/status.py", 'if pod.meta.get("generation") is not None:', "if False:", _TESTS,
    ),
    Mutation(
        "event-killing", "the event Killing",
        "agent/pods/work/steps/stop.py", 'context.event("Killing", step.message, step.name)', "pass", _TESTS,
    ),
    Mutation(
        "event-started", "the event Started",
        _START, 'context.event("Started", "Container started", name)', "pass", _TESTS,
    ),
    Mutation(
        "event-count", "equal events are one with a count",
        "agent/common/plan/event_series.py", "known is not None and now - known.last < WINDOW", "False",
        ("unit/agent/common",),
    ),
    Mutation(
        "event-series", "similar events become one",
        "agent/common/plan/event_series.py", "if len(messages) < _SIMILAR:", "if True:", ("unit/agent/common",),
    ),
    Mutation(
        "event-rate", "eventRecordQPS",
        "agent/common/plan/event_series.py", "max(0.0, -tokens / qps)", "0.0", ("unit/agent/common",),
    ),
    Mutation(
        "mirror-pods", "a static pod has a mirror pod",
        "agent/pods/plan/mirrors.py", "            yield CreateMirror(pod)", "            yield from ()",
        ("unit/agent/static",),
    ),
    Mutation(
        "static-pod-removed", "a static pod ends when its manifest is gone",
        "agent/static/work/static_pods.py", "self._workers.remove(old)", "pass", ("unit/agent/static",),
    ),
    Mutation(
        "static-pod-name", "a changed static pod waits until the old one is gone",
        "agent/static/work/static_pods.py", "if holder is None or (holder", "if True or (holder",
        ("unit/agent/static",),
    ),
    Mutation(
        "container-resize", "a running container is resized",
        "agent/pods/plan/resize.py", "if facts.actuated == wanted and facts.cgroup_allocation == wanted:", "if True:",
        _TESTS,
    ),
    Mutation(
        "resize-restarts", "resizePolicy RestartContainer",
        "agent/pods/plan/resize.py", "    return cpu or (_memory(before)", "    return False and (_memory(before)",
        _TESTS,
    ),
    Mutation(
        "resize-below-use", "a memory limit is not lowered below what is in use",
        "agent/pods/plan/resize.py", "elif used >= limit:", "elif False:", _TESTS,
    ),
    Mutation(
        "resize-order", "a pod's memory limit grows before those of its containers",
        "agent/pods/plan/resize.py", "if _bound(new.memory) > _bound(present.memory):", "if False:", _TESTS,
    ),
    Mutation(
        "trace-plan", "plans of a pod's start have spans",
        "agent/pods/work/tracing.py", "if self._starting and due:", "if False:", _TRACING,
    ),
    Mutation(
        "trace-plan-idle", "plans that find nothing to do have none",
        "agent/pods/work/start_notes.py", "self._tracer.nothing_to_do()", "self._tracer.planned(woken_at)", _TRACING,
    ),
    Mutation(
        "trace-scheduled", "a trace has the scheduler's time",
        "agent/pods/plan/spans.py", "    if pod.scheduled is not None:\n        queued",
        "    if False:\n        queued",
        _TRACING,
    ),
    Mutation(
        "trace-scheduled-bounds", "times of a scheduler that cannot be are not believed",
        "agent/pods/plan/scheduled.py", "0.0 < created <= queued <= bound <= seen", "queued", _TRACING,
    ),
)  # fmt: skip
