"""`why POD --waterfall` and `why POD --otlp FILE`: one pod's record, drawn or as a trace."""

from __future__ import annotations

import sys
import time

from cli.display.terminal import new_console
from cli.why import recorded, waterfall
from cli.why.model import Explained, Facts
from nodelib.errors import NotFound, Permanent
from nodelib.files import no_link
from nodelib.json_values import Json, objects_in
from nodelib.traces import otlp as otlp_text
from nodelib.version import KUBERNETES_VERSION
from view.plan.life import life

_WIDE = 140  # characters where nobody says how many there are


def show(pod: Explained, facts: Facts, *, waterfall: bool, otlp: str) -> None:
    """Draw it, or write it to the file `otlp`, or both. Raises NotFound without a record, Permanent for the file."""
    found = pod.found
    obj = facts.named("pod", found.namespace, found.name) or {"metadata": {"name": found.name}}
    now = time.time()
    if otlp:
        _write(pod, obj, now, otlp)
    if waterfall:
        _draw(pod, obj, facts, now)


def _draw(pod: Explained, obj: Json, facts: Facts, now: float) -> None:
    found = pod.found
    steps = recorded.as_steps(found.timeline) if pod.by_node else ()
    events = [one for one in facts.within("event", found.namespace) if _is_about(one, found.uid)]
    console = new_console(width=None if sys.stdout.isatty() else _WIDE)
    console.print(f"pod {found.namespace}/{found.name}" + (f" on {found.node}" if found.node else ""), style="bold")
    for line in waterfall.lines(life(obj, steps, events), console.width, now):
        console.print(line, soft_wrap=True)


def _is_about(event: Json, uid: str) -> bool:
    return any(one.get("uid") == uid for one in objects_in([event.get("involvedObject")]))


def _write(pod: Explained, obj: Json, now: float, path: str) -> None:
    found = pod.found
    if not pod.by_node or not found.timeline:
        raise NotFound(
            "its node has no record of it",
            obj=f"pod {found.namespace}/{found.name}",
            step="write its trace",
            action="A trace is made from the record of the node's agent: it must answer, and have started the pod.",
        )
    resource = {
        "service.name": "kubelet",
        "service.version": KUBERNETES_VERSION,
        "service.instance.id": found.node,
        "host.name": found.node,
        "k8s.node.name": found.node,
    }
    line = otlp_text.json_line(resource, recorded.as_spans(found, obj, now)) + "\n"
    if path == "-":
        sys.stdout.write(line)
        return
    try:
        # The folder may be another user's: what he has put there is neither followed nor waited for.
        with open(path, "w", encoding="utf-8", opener=no_link) as file:
            file.write(line)
    except OSError as error:
        raise Permanent(str(error), obj=path, step="write the trace", action="Name a file that can be written.") from (
            error
        )
