"""Why a node stopped a container, by the pod's events. Pure.

An agent that has just started does not know it any more, and the container would seem to end by itself.
"""

from __future__ import annotations

import re
from dataclasses import replace

from agent.explain.model import Wait
from agent.explain.plan.remedies import Subject, action_for
from cli.why.findings import at_time
from cli.why.model import Facts, namespace_of, newest, status_of
from nodelib.json_values import Json, object_or_empty, objects_in
from nodelib.text import one_line

_LOOP = "CrashLoopBackOff"
_KILLED = re.compile(r"failed (liveness|startup) probe")
_SLACK = 2.0  # seconds; times of the API are whole seconds
_TEXT = 2000  # bytes
_STATUSES = ("initContainerStatuses", "containerStatuses")


def corrected(wait: Wait, pod: Json, facts: Facts) -> Wait:
    """The wait, with what the events know of the attempt that ended last."""
    name = wait.on.removeprefix("container ")
    if wait.reason != _LOOP or not wait.error.startswith(("it exits by itself", "it ended with exit code")):
        return wait
    during = _during(pod, name, facts)
    about = Subject(namespace_of(pod), pod["metadata"]["name"], name)
    if any(one.get("reason") == "FailedPostStartHook" for one in during):
        return replace(wait, error="its postStart hook fails", action=action_for("PostStartHookError", "", about))
    for one in during:
        found = _KILLED.search(str(one.get("message"))) if one.get("reason") == "Killing" else None
        if found is not None:
            kind = found[1].capitalize()
            text = _output(during, kind)
            error = f"it is stopped because its {found[1]} probe fails" + (f": {text}" if text else "")
            return replace(wait, error=error, action=action_for(f"{kind}ProbeFailed", text, about))
    return wait


def _during(pod: Json, name: str, facts: Facts) -> list[Json]:
    """The container's events of its last attempt."""
    every = [one for listed in _STATUSES for one in objects_in(status_of(pod).get(listed)) if one.get("name") == name]
    ended = next((found for one in every if (found := _terminated(one))), {})
    began, end = at_time(ended.get("startedAt")), at_time(ended.get("finishedAt"))
    if began is None or end is None:
        return []
    return [
        one
        for one in facts.events(pod)
        if f"{{{name}}}" in str(object_or_empty(one.get("involvedObject")).get("fieldPath"))
        and began - _SLACK <= (at_time(newest(one)) or 0.0) <= end + _SLACK
    ]


def _terminated(status: Json) -> Json:
    for key in ("state", "lastState"):
        if found := object_or_empty(object_or_empty(status.get(key)).get("terminated")):
            return found
    return {}


def _output(events: list[Json], kind: str) -> str:
    said = [str(one.get("message")) for one in events if one.get("reason") == "Unhealthy"]
    prefix = f"{kind} probe failed: "
    return next((one_line(text.removeprefix(prefix).strip(), _TEXT) for text in said if text.startswith(prefix)), "")
