"""`nodewright why`: one explanation for each pod from several answers, and how it is printed."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.explain.model import End, Explanation, TimelineLine, Wait
from agent.explain.plan.document import to_json
from cli.commands import why
from cli.display.terminal import new_console
from cli.why import judge, show
from cli.why.findings import timeline
from cli.why.model import Explained, Facts
from cli.why.sources import asked
from nodelib.json_values import Json
from tests.builders.pods import pod_json

NOW = 1_767_225_600.0
PROJECT = Path(__file__).resolve().parents[4]


def explained(name: str = "web", uid: str = "u1", *waits: Wait, **more: Any) -> Explanation:
    return Explanation("shop", name, uid, "n1", "Running" if not waits else "Pending", "a sentence", waits, **more)


def api_pod(name: str = "web", uid: str = "u1", node: str = "n1", **status: Any) -> Json:
    return pod_json(name, meta={"namespace": "shop", "uid": uid}, status=status, nodeName=node)


def judged(agents: dict[str, list[Json]], pods: list[Json] | None, events: list[Json]) -> list[Explained]:
    return judge.explained(agents, Facts({"pod": tuple(pods), "event": tuple(events)}) if pods is not None else Facts())


def page(out: io.StringIO) -> show.Page:
    return show.Page(NOW, console=new_console(out, width=200))


def test_the_node_s_word_counts_before_the_api_s() -> None:
    mine = explained("web", "u1", Wait("volumes", "FailedMount"))
    (only,) = judged({"n1": [to_json(mine)]}, [api_pod(phase="Running")], [])
    assert only.by_node and only.found == mine and not only.is_well


def test_a_pod_without_a_node_is_explained_by_the_scheduler_s_condition() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient memory.",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    (only,) = judged({}, [api_pod(node="", phase="Pending", conditions=[condition])], [])
    (wait,) = only.found.waits
    assert (wait.on, wait.reason, wait.since) == ("scheduler", "Unschedulable", NOW)
    assert "Ask for less memory" in wait.action and not only.by_node


def test_finalizers_hold_a_pod_that_its_node_has_let_go() -> None:
    pod = api_pod(phase="Failed")
    pod["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 0,
        "finalizers": ["example.com/keep"],
    }
    (only,) = judged({"n1": []}, [pod], [])
    (wait,) = only.found.waits
    assert (wait.on, wait.error, wait.since) == ("finalizers", "example.com/keep", NOW)


def test_without_the_api_the_nodes_are_enough() -> None:
    (only,) = judged({"n1": [to_json(explained())]}, None, [])
    assert only.by_node and only.is_well


def test_a_name_finds_the_pods_of_a_deployment_when_no_pod_is_called_so() -> None:
    every = judged({"n1": [to_json(explained(f"web-{i}", f"u{i}")) for i in range(2)]}, None, [])
    assert [one.found.name for one in judge.matching(every, "shop", "web")] == ["web-0", "web-1"]
    assert [one.found.name for one in judge.matching(every, "shop", "web-1")] == ["web-1"]
    assert judge.matching(every, "other", "web") == []


def test_events_are_the_timeline_of_a_pod_that_no_agent_here_knows() -> None:
    event = {
        "metadata": {},
        "involvedObject": {"uid": "u1"},
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "no room",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "count": 3,
    }
    (only,) = judged({}, [api_pod(phase="Pending", node="")], [event])
    (entry,) = only.found.timeline
    assert (entry.step, entry.outcome, entry.times, entry.at) == ("FailedScheduling", "no room", 3, NOW)


def test_tries_to_create_pods_whose_names_are_generated_are_one_line() -> None:
    """A ReplicaSet over its quota tries again and again, each time with another name."""
    events = [
        {
            "metadata": {},
            "type": "Warning",
            "reason": "FailedCreate",
            "message": f'Error creating: pods "web-6d4b75cb6d-{suffix}" is forbidden: exceeded quota: {quota}',
            "firstTimestamp": f"2026-01-01T00:00:0{at}Z",
            "lastTimestamp": f"2026-01-01T00:00:0{at}Z",
        }
        for at, (suffix, quota) in enumerate([("x2k4q", "cpu"), ("ffb9z", "memory"), ("zzhjk", "cpu")])
    ]
    memory, cpu = timeline(events)
    assert (memory.times, cpu.times, cpu.at, cpu.last_at) == (1, 2, NOW, NOW + 2)
    assert '"web-6d4b75cb6d-zzhjk"' in cpu.outcome, "the newest is shown as it is"


def test_what_is_shown_of_one_pod() -> None:
    wait = Wait("container app", "CrashLoopBackOff", "exit code 1", "Read its log.", NOW - 75, NOW + 9, 3)
    steps = (
        TimelineLine(NOW - 90, "start app", 0.25, kind="start", container="app"),
        TimelineLine(NOW - 80, "sandbox", 0.1),
        TimelineLine(NOW - 89, "run app", 0.2, of="start app", kind="run", container="app", of_kind="start"),
        TimelineLine(NOW - 70, "stop app", note="failed liveness probe"),
    )
    found = explained("web", "u1", wait, ends=(End("app", NOW - 20, "exit code 1", "no disk"),), timeline=steps)
    out = io.StringIO()
    show.one(Explained(found, True), page(out))
    text = out.getvalue()
    for part in ("for 1 min 15 s", "3 times", "(in 9 s)", "do: Read its log.", "ended 20 s ago, exit code 1: no disk"):
        assert part in text
    lines = [line.split()[1:3] for line in text.splitlines() if (":" in line and "app" in line) or "sandbox" in line][
        -4:
    ]
    assert lines == [["start", "app"], ["run", "app"], ["sandbox", "0.100"], ["stop", "app"]]


def test_brackets_in_what_a_runtime_says_are_shown_as_they_are() -> None:
    error = 'failed to find plugin "loopback" in path [/opt/cni/bin]'
    found = explained(
        "web", "u1", Wait("sandbox", error, error), timeline=(TimelineLine(NOW - 9, "sandbox", 0.1, outcome=error),)
    )
    out = io.StringIO()
    show.one(Explained(found, True), page(out))
    show.many([Explained(found, True)], page(out))
    assert out.getvalue().count("[/opt/cni/bin]") >= 2


def test_the_newest_round_reads_from_top_to_bottom_and_nothing_is_said_twice() -> None:
    error = "its liveness probe fails: refused"
    steps = (
        TimelineLine(NOW - 90, "start app", 0.2, times=3, last_at=NOW - 30),
        TimelineLine(NOW - 89, "ended app", 5.0, outcome="exit code 0", times=3, last_at=NOW - 29, kind="ended"),
        TimelineLine(NOW - 88, "ready", 0.0, times=3, last_at=NOW - 29.5),
        TimelineLine(NOW - 85, "stop app", 1.0, times=3, last_at=NOW - 25),
        TimelineLine(NOW - 84, "hook", 1.0, outcome=error, last_at=NOW - 26),
        TimelineLine(NOW - 40, "remove container", 0.1),
    )
    ends = tuple(End("app", NOW - 24 - 20 * again, "exit code 0", "failed liveness probe") for again in range(2))
    wait = Wait("container app", "CrashLoopBackOff", error, "Mend it.")
    pod = explained("web", "u1", wait, ends=ends, timeline=steps)
    out = io.StringIO()
    show.one(Explained(replace(pod, summary=f"Running, waits: {error}"), True), page(out))
    text = out.getvalue()
    assert text.count(error) == 1 and "failed, see above" in text
    assert text.count("failed liveness probe") == 1 and "ended 2 times, last 24 s ago" in text
    order = ["remove container", "start app", "ready", "hook", "stop app", "ended app"]
    places = [text.index(f"  {step} ") for step in order]
    assert places == sorted(places)


async def test_an_agent_that_is_not_running_is_named_by_its_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    expected = (None, f"its agent is not running (nothing listens on {path})")
    assert await asked(path, "/why") == expected
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
    assert await asked(path, "/why") == expected, "a socket that is left of a killed agent"
    assert await asked("", "/why") == (None, "its agent is not running")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives up root to become another user")
def test_another_user_than_root_gets_an_error_that_says_who_may_ask(tmp_path: Path) -> None:
    # Imported first: the interpreter itself may lie where only root can read.
    code = f"""
import asyncio, os
from cli.why.sources import asked
from tests.builders.pods import pod_json
os.setgid(65534); os.setuid(65534)
print(asyncio.run(asked({str(tmp_path / "agent.sock")!r}, "/why")))
"""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent.sock"))
        listener.listen()
        tmp_path.chmod(0o700)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(PROJECT)}
        )
    assert done.stdout.strip() == "(None, 'only root may open its socket')", done.stderr


@pytest.mark.parametrize(
    ("count", "namespace", "said"),
    [
        (3, "shop", "All 3 pods of namespace shop are running and ready"),
        (0, None, "All 0 pods are running"),
        (
            0,
            "shpo",
            "There are no pods of namespace shpo, and nothing else there is not well. `kubectl get namespaces`",
        ),
    ],
)
def test_a_namespace_without_pods_is_not_called_well(count: int, namespace: str | None, said: str) -> None:
    """Often its name is misspelt."""
    out = io.StringIO()
    why.put([], None, page(out), count, namespace)
    assert said in out.getvalue()
