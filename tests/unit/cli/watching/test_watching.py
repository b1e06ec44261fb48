"""`--watch`: what counts as a change, how it is shown, and how often."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.text import Text

from agent.explain.model import End, Explanation, TimelineLine, Wait
from cli.commands import status_watch, why_watch
from cli.display.terminal import new_console
from cli.watching.changes import Change, Frame, changes, differs, lines
from cli.watching.collections import Collections
from cli.watching.follow import follow
from cli.watching.screens import Cut, Documents, Lines, screen
from cli.why import news
from cli.why.model import Explained, Facts
from cli.why.sources import Answers
from cli.why.targets import Target
from cli.why.wording import Wording
from controlplane.cluster.plan.podless import Podless
from controlplane.cluster.work.status import Daemon
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.tasks import cancel_and_wait
from tests.fakes.clock import FakeClock, settle
from tests.unit.cli.commands.test_status import NODE, WELL

NOW = 1_767_225_600.0
HOSTILE = "web\x1b[2J\x9b31m\r\nAPI server: answers"


def moment(entries: dict[str, tuple[str, ...]], **more: Any) -> Frame:
    return Frame(entries, more.pop("document", {}), lambda now: (), **more)


def waiting(*waits: Wait, **more: Any) -> Explained:
    phase = "Pending" if waits else "Running"
    found = Explanation("shop", "web", "u1", "node1", phase, "Running and ready", waits, **more)
    return Explained(found, True)


# --- the planner -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (None, moment({"a": ("1",)}), [Change("a", ("1",))]),
        (moment({"a": ("1",)}), moment({"a": ("1",)}), []),
        (moment({"a": ("1",), "b": ("1",)}), moment({"a": ("1",), "b": ("2", "x")}), [Change("b", ("2", "x"))]),
        (moment({"a": ("1",)}), moment({}), [Change("a", ("is gone",))]),
        (moment({"a": ("1",)}), moment({}, others={"a": "is well", "b": "is well"}), [Change("a", ("is well",))]),
    ],
    ids=["first", "same", "other words", "gone", "well again"],
)
def test_only_what_differs_is_news(before: Frame | None, after: Frame, wanted: list[Change]) -> None:
    assert changes(before, after) == wanted


def test_what_happened_is_told_once_and_forgetting_it_is_no_news() -> None:
    first, second = moment({}, happened=("1 begun", "1 begun")), moment({}, happened=("1 begun", "2 ended"))
    assert list(lines(None, first, "12:00:00")) == ["1 begun"]
    assert list(lines(first, second, "12:00:00")) == ["2 ended"]
    assert list(lines(second, moment({}, happened=("2 ended",)), "12:00:00")) == []


def test_a_document_differs_by_more_than_what_changes_all_the_time() -> None:
    one = moment({}, document={"nodes": [{"state": "Ready", "at": 1}]}, volatile=frozenset({"at"}))
    later = replace(one, document={"nodes": [{"state": "Ready", "at": 2}]})
    assert differs(None, one) and not differs(one, later)
    assert differs(one, replace(one, document={"nodes": [{"state": "not Ready", "at": 1}]}))


def test_names_of_others_drive_no_terminal_and_forge_no_line() -> None:
    found = list(lines(None, moment({HOSTILE: (HOSTILE, HOSTILE)}, happened=(HOSTILE,)), "12:00:00"))
    assert len(found) == 3 and all(line.isprintable() for line in found)
    assert not any(line.startswith("API server") for line in found)


def test_ages_tries_and_progress_of_a_wait_are_no_news() -> None:
    wait = Wait("image of container web", "Pulling", "", "", since=NOW, tries=1, progress="1 of 9 MiB")
    later = replace(wait, tries=2, progress="7 of 9 MiB", next_try=NOW + 9)
    assert news.entries([waiting(wait)], Wording()) == news.entries([waiting(later)], Wording())
    failed = replace(wait, reason="ErrImagePull", error="not found")
    assert news.entries([waiting(wait)], Wording()) != news.entries([waiting(failed)], Wording())


def test_of_a_container_s_ends_the_newest_is_told() -> None:
    ends = (End("web", NOW + 9, "exit code 3", times=2), End("web", NOW, "exit code 1"))
    (found,) = news.entries([waiting(ends=ends)], Wording()).values()
    assert found[1:] == ("container web ended 2 times, last: exit code 3",)


def test_each_step_of_a_pod_s_start_is_told_when_it_begins_and_when_it_ends() -> None:
    begun, ended = TimelineLine(NOW, "image web"), TimelineLine(NOW, "image web", 2.5)
    first, second = (why_frame([waiting(timeline=(one,))], Target("pod", "shop", "web")) for one in (begun, ended))
    assert next(line.partition(" ")[2] for line in lines(None, first, "")) == "image web: under way"
    assert [line.partition(" ")[2] for line in lines(first, second, "")] == ["image web: 2.500 s"]


def why_frame(found: list[Explained], wanted: Target | None = None, **answers: Any) -> Frame:
    known = Answers({"node1": ()}, answers.pop("silent", {}), Facts({"pod": ()}), answers.pop("api", ""))
    return why_watch.frame(found, found, known, wanted, None, Wording("lab"))


def test_who_does_not_answer_is_said_and_that_it_is_back() -> None:
    good, bad = why_frame([]), why_frame([], api="no answer: Connection refused", silent={"node1": "not running"})
    assert [line[9:] for line in lines(good, bad, "12:00:00")] == [
        "API server: does not answer (no answer: Connection refused); what is said of its objects is as it was before",
        "agent of node1: does not answer: not running",
    ]
    assert [line[9:] for line in lines(bad, good, "12:00:00")] == [
        "API server: answers",
        "agent of node1: answers",
    ]
    assert any("does not answer" in str(part) for part in bad.drawn(NOW))


def test_a_pod_that_does_not_exist_is_waited_for() -> None:
    frame = why_frame([], Target("pod", "shop", "web"))
    assert [str(part) for part in frame.drawn(NOW)] == [
        "There is no pod shop/web; it is shown as soon as there is one."
    ]


def test_of_a_cluster_a_daemon_s_end_and_start_are_changes_and_a_heartbeat_is_none() -> None:
    well = status_watch.frame(WELL)
    beat = replace(WELL, nodes=(replace(NODE, proxy_synced="2026-11-22T23:59:00Z", proxy="synced then"), WELL.nodes[1]))
    assert not differs(well, status_watch.frame(beat)) and not changes(well, status_watch.frame(beat))
    down = status_watch.frame(
        replace(WELL, daemons=(WELL.daemons[0], Daemon("node1", "agent", False, 7, 1, "SIGKILL")))
    )
    again = status_watch.frame(
        replace(WELL, daemons=(WELL.daemons[0], Daemon("node1", "agent", True, 8, 2, "SIGKILL")))
    )
    assert changes(well, down) == [Change("daemon node1/agent", ("is down, it ended with SIGKILL",))]
    assert changes(down, again) == [Change("daemon node1/agent", ("runs as process 8, start 2",))]
    assert differs(well, down)


def test_a_pod_that_is_ready_now_is_said_to_be_and_one_that_left_is_gone() -> None:
    ill = status_watch.frame(WELL)
    assert changes(ill, status_watch.frame(replace(WELL, pods=(replace(WELL.pods[0], ready=True),)))) == [
        Change("pod shop/web-0", ("is ready",))
    ]
    assert changes(ill, status_watch.frame(replace(WELL, pods=()))) == [Change("pod shop/web-0", ("is gone",))]


async def test_an_outage_between_two_frames_is_said_once_and_then_that_it_is_over() -> None:
    async with KubeClient(ClusterAccess(server="https://127.0.0.1:1"), user_agent="test") as client:
        found = Collections(client, {"pod": "/api/v1/pods"}, asyncio.Event())
        found.on_state("pod", "")
        assert found.why_silent("pod") == ""
        found.on_state("pod", "Connection refused")
        found.on_state("pod", "")
        assert found.why_silent("pod") == "Connection refused"
        found.news.clear()
        found.said()
        assert found.news.is_set() and found.why_silent("pod") == ""


# --- the screens -----------------------------------------------------------------------------------------------------


def test_programs_get_a_document_a_line_and_none_without_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Documents()
    for state in ("Ready", "Ready", HOSTILE):
        screen.show(moment({}, document={"state": state}))
    out = capsys.readouterr().out
    assert [json.loads(line)["state"] for line in out.splitlines()] == ["Ready", HOSTILE]
    assert "\x1b" not in out and "\x9b" not in out


def test_a_pipe_gets_everything_and_then_what_changes(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Lines()
    for state in ("1", "1", "2"):
        screen.show(moment({"a": ("same",), "b": (state,)}))
    assert [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()] == ["a: same", "b: 1", "b: 2"]


@pytest.mark.parametrize(("plain", "drawn"), [(True, False), (False, True)])
def test_a_terminal_gets_lines_too_if_they_are_asked_for(
    plain: bool, drawn: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    monkeypatch.setenv("TERM", "xterm")
    with screen("status", as_json=False, plain=plain) as shown:
        shown.show(moment({"a": ("same",)}))
    assert isinstance(shown, Lines) is not drawn
    assert ("\x1b[" in capsys.readouterr().out) is drawn


@pytest.mark.parametrize(("width", "height"), [(20, 5), (40, 12), (200, 3), (1, 1)])
def test_a_terminal_gets_no_more_lines_than_it_has_and_none_is_too_long(width: int, height: int) -> None:
    console = new_console(io.StringIO(), width=width)
    every = tuple(f"pod shop/web-{number}: {HOSTILE}" for number in range(100))
    options = console.options.update(width=width, height=height)
    found = console.render_lines(Cut(every), options, pad=False)
    texts = ["".join(segment.text for segment in line) for line in found]
    assert len([line for line in texts if line]) <= height
    assert all(len(line) <= width for line in texts)
    assert "\x1b" not in "".join(texts) and "\x9b" not in "".join(texts)
    assert width < 20 or any("more below" in line for line in texts)


def test_what_fits_is_shown_whole() -> None:
    console = new_console(io.StringIO(), width=40)
    options = console.options.update(width=40, height=3)
    found = console.render_lines(Cut((Text("a"), "b", "c")), options, pad=False)
    assert ["".join(segment.text for segment in line) for line in found] == ["a", "b", "c"]


# --- the rate --------------------------------------------------------------------------------------------------------


class Asked:
    """A source whose frames take `takes` seconds; `busy`: there is news all the time."""

    def __init__(self, clock: FakeClock, *, takes: float = 0.0, busy: bool = False) -> None:
        self.news = asyncio.Event()
        self._clock, self._takes, self._busy = clock, takes, busy

    async def frame(self) -> Frame:
        if self._takes:
            await self._clock.sleep(self._takes)
        if self._busy:
            self.news.set()
        return moment({})

    def rest(self) -> float:
        return 5.0


class Counting:
    def __init__(self) -> None:
        self.shown = self.ticks = 0

    def show(self, frame: Frame) -> None:
        self.shown += 1

    def tick(self) -> None:
        self.ticks += 1


@pytest.mark.parametrize(("takes", "most"), [(0.0, 41), (0.5, 5)])
async def test_however_much_happens_there_are_few_frames(takes: float, most: int) -> None:
    clock, screen = FakeClock(), Counting()
    source = Asked(clock, takes=takes, busy=True)
    task = asyncio.ensure_future(follow(source, screen, clock))
    await clock.advance(10)
    await cancel_and_wait(task)
    assert most - 2 <= screen.shown <= most


async def test_without_news_it_looks_again_after_a_while_and_ages_go_on() -> None:
    clock, screen = FakeClock(), Counting()
    task = asyncio.ensure_future(follow(Asked(clock), screen, clock))
    await settle()
    await clock.advance(4.9)
    assert screen.shown == 1 and 4 <= screen.ticks <= 6
    await clock.advance(0.5)
    assert screen.shown == 2
    await cancel_and_wait(task)


def test_a_workload_that_has_pods_again_is_not_gone() -> None:
    short = status_watch.frame(replace(WELL, podless=(Podless("deployment", "shop", "web", "has 0 of 3 pods"),)))
    well = status_watch.frame(WELL, ["deployment shop/web"])
    assert changes(well, short) == [Change("deployment shop/web", ("has 0 of 3 pods",))]
    assert changes(short, well) == [Change("deployment shop/web", ("has pods",))]
    assert changes(short, status_watch.frame(WELL)) == [Change("deployment shop/web", ("is gone",))]
