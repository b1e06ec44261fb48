"""Which containers are restarted, and how long a container may take to stop.

Follows podutil.ContainerShouldRestart and kuberuntime's setTerminationGracePeriod.
"""

from __future__ import annotations

from agent.common.model.pods import ContainerState, Kind, Pod, RunState
from nodelib.json_values import Json

MINIMUM_GRACE = 2  # seconds


def is_sidecar(kind: Kind, container: Json) -> bool:
    """An init container that runs beside the others (KEP-753)."""
    return kind is Kind.INIT and container.get("restartPolicy") == "Always"


def restarts(pod: Pod, container: Json, exit_code: int) -> bool:
    """Whether a container with this exit code is restarted: by its rules, its own policy, or the pod's policy."""
    own = container.get("restartPolicy")
    rule = first_rule(container, exit_code)
    if rule is not None and rule.get("action") in ("Restart", "RestartAllContainers"):
        return True
    policy = own or pod.restart_policy
    if policy == "Never":
        return False
    return policy != "OnFailure" or exit_code != 0


def first_rule(container: Json, exit_code: int) -> Json | None:
    """The first restart rule for this exit code; rules count only if the container has a restartPolicy of its own."""
    rules = container.get("restartPolicyRules") or [] if container.get("restartPolicy") else []
    return next((rule for rule in rules if _matches(rule, exit_code)), None)


def may_restart(pod: Pod, container: Json) -> bool:
    """Whether a container that a probe found failing is restarted."""
    return bool((container.get("restartPolicy") or pod.restart_policy) != "Never")


def should_start(pod: Pod, container: Json, latest: ContainerState | None) -> bool:
    """Whether the container should run and does not."""
    if pod.is_deleted:
        return False
    if latest is None or latest.state in (RunState.CREATED, RunState.UNKNOWN):
        return True
    return latest.state is RunState.EXITED and restarts(pod, container, latest.exit_code)


def grace_seconds(pod: Pod, container: Json | None = None, probe: str = "") -> int:
    """The grace period of a kill, in seconds; `probe`: "livenessProbe" or "startupProbe" when that one failed."""
    deletion = pod.meta.get("deletionGracePeriodSeconds")
    if deletion is not None:
        return int(deletion)
    whole = pod.spec.get("terminationGracePeriodSeconds")
    if whole is None:
        return MINIMUM_GRACE
    own = ((container or {}).get(probe) or {}).get("terminationGracePeriodSeconds") if probe else None
    return int(own if own is not None else whole)


def _matches(rule: Json, exit_code: int) -> bool:
    codes = rule.get("exitCodes") or {}
    inside = exit_code in (codes.get("values") or [])
    return inside if codes.get("operator") == "In" else not inside
