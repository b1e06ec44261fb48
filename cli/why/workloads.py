"""Why a workload has not the pods that it should have: Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs. Pure.

What its pods wait for is said of the pods themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.explain.model import Wait
from cli.why.findings import at_time, finding, warning
from cli.why.model import Explained, Facts, condition, controller, namespace_of, pods_of, spec_of, status_of
from cli.why.remedies import remedy
from nodelib.json_values import Json, object_or_empty

_REFUSED = ("FailedCreate", "ReplicaSetCreateError", "FailedDaemonPod")


def workload(kind: str, obj: Json, facts: Facts) -> Explained:
    """A Deployment, ReplicaSet, StatefulSet or DaemonSet."""
    wanted, ready = _counts(kind, obj)
    refused = list(_refused(kind, obj, facts))
    waits = [*refused, *_stopped(kind, obj), *_rollout(kind, obj), *_nowhere(kind, obj, wanted)]
    state = f"{ready} of {wanted} pods ready"
    if not wanted and kind != "daemonset":
        state = "scaled to 0, so it has no pods"
    if not waits and ready < wanted:
        pods = len(pods_of(kind, obj, facts))
        waits.append(_pods_wait(kind, obj, wanted, ready, pods))
    own = controller(obj).get("kind") == "Deployment"
    shown = not own and bool(refused or (not pods_of(kind, obj, facts) and ready < wanted))
    return finding(kind, obj, state, waits, facts, listed=shown, also=_newest_set(kind, obj, facts))


def job(obj: Json, facts: Facts) -> Explained:
    """A Job that is suspended, has failed, or gets no pods."""
    status, spec, waits = status_of(obj), spec_of(obj), []
    failed, done = condition(obj, "Failed"), condition(obj, "Complete")
    state = f"{status.get('succeeded') or 0} of {spec.get('completions') or 1} pods succeeded"
    if failed.get("status") == "True":
        waits.append(_of_condition("job", obj, failed, "completion"))
    elif done.get("status") == "True":
        state = f"Complete: {state}"
    elif spec.get("suspend"):
        text = "spec.suspend is true, so it starts no pods"
        waits.append(Wait("its own setting", "Suspended", text, remedy("Suspended", text, "job", obj)))
    else:
        waits += _refused("job", obj, facts)
        pods = facts.owned("pod", obj)
        if not waits and not status.get("ready"):
            text = f"{len(pods)} pods exist, none of them runs yet" if pods else "no pod has been made for it yet"
            waits.append(Wait("its pods", "NotRunning", text))
    listed = any(one.reason != "NotRunning" for one in waits)
    return finding("job", obj, state, waits, facts, listed=listed and not _is_past(obj, facts))


def cron_job(obj: Json, facts: Facts) -> Explained:
    """A CronJob that is suspended, or whose newest Job does not do well."""
    spec, status, waits = spec_of(obj), status_of(obj), []
    last = status.get("lastScheduleTime")
    state = (
        f"schedule {spec.get('schedule')}, last run {last}" if last else f"schedule {spec.get('schedule')}, no run yet"
    )
    if spec.get("suspend"):
        text = "spec.suspend is true, so it makes no Jobs"
        waits.append(Wait("its own setting", "Suspended", text, remedy("Suspended", text, "cronjob", obj)))
    event = warning(facts.events(obj), "FailedNeedsStart", "TooManyMissedTimes", "FailedCreate", "UnparseableSchedule")
    if event and not status.get("active"):
        text = str(event.get("message", ""))
        waits.append(Wait("its next run", str(event["reason"]), text, remedy("FailedCreate", text, "cronjob", obj)))
    jobs = sorted(facts.owned("job", obj), key=_made)
    if jobs:
        newest = job(jobs[-1], facts)
        waits += [Wait(f"job {newest.found.name}", w.reason, w.error, w.action, w.since) for w in newest.found.waits]
    return finding("cronjob", obj, state, waits, facts, listed=False)


def _counts(kind: str, obj: Json) -> tuple[int, int]:
    """How many pods it should have, and how many are ready."""
    status, spec = status_of(obj), spec_of(obj)
    if kind == "daemonset":
        return int(status.get("desiredNumberScheduled") or 0), int(status.get("numberReady") or 0)
    replicas = spec.get("replicas")
    return 1 if replicas is None else int(replicas), int(status.get("readyReplicas") or 0)


def _refused(kind: str, obj: Json, facts: Facts) -> Iterator[Wait]:
    """The API server refuses its pods, by quota or admission."""
    found = condition(obj, "ReplicaFailure")
    if found.get("status") == "True":
        yield _of_condition(kind, obj, found, "the API server")
        return
    wanted, _ = _counts(kind, obj)
    if kind in ("deployment", "replicaset") or (kind != "job" and len(pods_of(kind, obj, facts)) >= wanted):
        return
    event = warning(facts.events(obj), *_REFUSED)
    if event and not (kind == "job" and facts.owned("pod", obj)):
        text = str(event.get("message", ""))
        action = remedy("FailedCreate", text, kind, obj)
        since = at_time(event.get("firstTimestamp"))
        yield Wait("the API server", str(event["reason"]), text, action, since, tries=int(event.get("count") or 1))


def _stopped(kind: str, obj: Json) -> Iterator[Wait]:
    status = status_of(obj)
    if kind == "deployment" and spec_of(obj).get("paused"):
        wanted, _ = _counts(kind, obj)
        if int(status.get("updatedReplicas") or 0) < wanted:
            text = "spec.paused is true, so its newest template is not rolled out"
            yield Wait("its own setting", "Paused", text, remedy("Paused", text, kind, obj))


def _rollout(kind: str, obj: Json) -> Iterator[Wait]:
    found = condition(obj, "Progressing")
    if found.get("status") == "False" and found.get("reason") == "ProgressDeadlineExceeded":
        yield _of_condition("deployment", obj, found, "its rollout")
        return
    status, (wanted, ready) = status_of(obj), _counts(kind, obj)
    missing, newest = int(status.get("unavailableReplicas") or 0), int(status.get("updatedReplicas") or 0)
    if kind == "deployment" and missing and 0 < newest < int(status.get("replicas") or 0) and ready:
        are = "is" if missing == 1 else "are"
        text = (
            f"{newest} of {wanted} pods have its newest template; {missing} {are} not available yet, the old ones serve"
        )
        yield Wait("its rollout", "RolloutUnderWay", text, remedy("RolloutUnderWay", text, kind, obj))


def _nowhere(kind: str, obj: Json, wanted: int) -> Iterator[Wait]:
    if kind != "daemonset" or wanted or "observedGeneration" not in status_of(obj):
        return
    pod = object_or_empty(object_or_empty(spec_of(obj).get("template")).get("spec"))
    labels = ",".join(f"{key}={value}" for key, value in object_or_empty(pod.get("nodeSelector")).items())
    text = "no node fits its pods" + (f": none has the labels {labels}" if labels else "")
    action = remedy("NoNodeFits", labels, kind, obj)
    yield Wait("a node", "NoNodeFits", text, action)


def _pods_wait(kind: str, obj: Json, wanted: int, ready: int, pods: int) -> Wait:
    if not pods:
        text = "its controller has made no pod for it yet"
        return Wait("its controller", "NoPods", text, remedy("NoPods", text, kind, obj))
    return Wait("its pods", "NotReady", f"{ready} of {wanted} pods are ready")


def _of_condition(kind: str, obj: Json, found: Json, on: str) -> Wait:
    reason, text = str(found.get("reason", "")), str(found.get("message", ""))
    return Wait(on, reason, text, remedy(reason, text, kind, obj), at_time(found.get("lastTransitionTime")))


def _newest_set(kind: str, obj: Json, facts: Facts) -> Json | None:
    """The newest ReplicaSet of a Deployment, whose events tell why there are no pods."""
    if kind != "deployment":
        return None
    sets = sorted(facts.owned("replicaset", obj), key=_made)
    return sets[-1] if sets else None


def is_done_by(pod: Json, facts: Facts) -> bool:
    """Whether a pod that failed belongs to a Job that has succeeded all the same, or that nobody waits for."""
    owner = controller(pod)
    found = facts.named("job", namespace_of(pod), str(owner.get("name"))) if owner.get("kind") == "Job" else None
    return found is not None and (_is_complete(found) or _is_past(found, facts))


def _is_past(obj: Json, facts: Facts) -> bool:
    """Whether a later Job of the same CronJob has succeeded."""
    uid = controller(obj).get("uid")
    return bool(uid) and facts.once("succeeded", lambda: _succeeded(facts)).get(str(uid), "") > _made(obj)


def _succeeded(facts: Facts) -> dict[str, str]:
    """When the newest Job that succeeded was made, by the uid of its CronJob."""
    found: dict[str, str] = {}
    for one in facts.all("job"):
        if _is_complete(one):
            uid = str(controller(one).get("uid"))
            found[uid] = max(found.get(uid, ""), _made(one))
    return found


def _is_complete(obj: Json) -> bool:
    return condition(obj, "Complete").get("status") == "True"


def _made(obj: Json) -> str:
    return str(obj["metadata"].get("creationTimestamp") or "")
