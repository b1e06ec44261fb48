"""A run of the scoreboard: what was interrupted goes on, and a part that cannot run does not end the others."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.cluster.edge import state
from controlplane.machine.edge.locks import directory_lock
from controlplane.progress import Say
from controlplane.scoreboard.edge import store
from controlplane.scoreboard.model import Group, Match, Part, Program, Spec, Step
from controlplane.scoreboard.plan import document
from controlplane.scoreboard.plan.schedule import next_step
from controlplane.scoreboard.work import board, parts, runner
from controlplane.scoreboard.work.order import Order
from controlplane.suites.work import conformance, node_suite
from controlplane.suites.work.results import Report
from nodelib.errors import Conflict, Invalid, Temporary
from tests.fakes.clock import FakeClock

SPECS = {
    Program.E2E: ("[sig-network] DNS answers [Conformance]", "[sig-windows] Pods run"),
    Program.NODE: ("[sig-node] Pods run [NodeConformance]", "[sig-node] MirrorPod restarts [Serial]"),
}


class Silent:
    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Say]:
        yield lambda detail: None


@contextlib.contextmanager
def displays() -> Iterator[Silent]:
    yield Silent()


class World:
    """Suites that list SPECS, and clusters that come and go; `fails`: names of what raises when it is run."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.raised, self.removed, self.ran = 0, 0, list[str]()
        self.running: list[str] = []
        self.focuses: list[str] = []
        self.together, self.all_there = 1, asyncio.Event()  # how many of those beside others wait for each other
        self.beside: set[tuple[str, ...]] = set()  # what ran at the same time
        self.left: set[str] = set()  # clusters that are there
        self.stops: BaseException | None = None
        self.stops_in = self.hangs_in = ""
        self.hangs = asyncio.Event()
        self.fails: dict[str, int] = {}  # how often, by a word of the spec's name
        self.said: list[str] = []
        self.clock = FakeClock()
        self.order = Order(
            "board", "abc", "/project", "python", results=folder / "results", pages=folder, binaries_dir=folder / "bin"
        )
        (folder / "bin").mkdir()
        for program, names in SPECS.items():
            (folder / program).write_text(_listing(names))
            script = folder / "bin" / program
            script.write_text(
                "#!/bin/sh\nmkdir kubelet.conf.d  # as e2e_node.test does where it is started\n"
                "for word; do case $word in *json-report=*) "
                f'cp {folder}/{program} "${{word#*=}}";; esac; done\n'
            )
            script.chmod(0o755)
        monkeypatch.setattr(parts, "up", self._up)
        monkeypatch.setattr(parts, "down", self._down)
        monkeypatch.setattr(runner, "down", self._down)
        monkeypatch.setattr(conformance, "run", self._e2e)
        monkeypatch.setattr(node_suite, "run", self._node)

    async def _up(self, request: object, *_: object) -> object:
        self.raised += 1

        class Raised:
            cluster = request

        return Raised

    async def _down(self, name: str, *_: object) -> None:
        assert name.startswith("board")
        self.left.discard(name)
        self.removed += 1

    async def _e2e(self, cluster: object, order: conformance.Order, *_: object) -> Report:
        return await self._suite(order.focus, order.results, order.procs)

    async def _node(self, order: node_suite.NodeOrder, *_: object) -> Report:
        return await self._suite(order.focus, order.results, order.procs, order.agent, beside=order.beside)

    async def _suite(
        self, focus: str, results: Path | None, procs: int, agent: str = "", *, beside: bool = False
    ) -> Report:
        assert results is not None
        second = results.name == "second"
        assert procs == 1 or not second
        folder = results.parent if second else results
        assert not agent or agent == folder.name
        step = f"{folder.parent.name} {folder.name}{' again' if second else ''}"
        self.ran.append(step)
        self.running.append(step)
        self.focuses.append(focus)
        self.beside.add(tuple(self.running))
        assert beside or len(self.running) == 1
        if len(self.running) == self.together:
            self.all_there.set()
        try:
            if beside:
                await self.all_there.wait()
            return await self._report(step, focus, results)
        finally:
            self.running.remove(step)

    async def _report(self, step: str, focus: str, results: Path) -> Report:
        if self.stops is not None and self.stops_in in step:
            raise self.stops
        if self.hangs_in and self.hangs_in in step:
            self.hangs.set()
            await asyncio.Event().wait()
        names = [name for names in SPECS.values() for name in names if re.search(focus, name)]
        await self.clock.advance(60)
        cases = "".join(
            f'<testcase name="[It] {name} [sig-x]" time="1">{self._failure(name)}</testcase>' for name in names
        )
        (results / "junit_01.xml").write_text(f"<t>{cases}</t>")
        return Report((), results, 1.0, 0)

    def _failure(self, name: str) -> str:
        word = next((word for word, times in self.fails.items() if times and word in name), "")
        if not word:
            return ""
        self.fails[word] -= 1
        return '<failure message="no answer"/>'

    async def run(self, **changes: object) -> document.Board:
        order = dataclasses.replace(self.order, **changes)  # type: ignore[arg-type]  # of fields by their names
        return await board.run(order, displays, self.clock, self.said.append)

    async def run_until(self, step: str, **changes: object) -> None:
        """Stop the run in the middle of that step."""
        self.hangs_in = step
        running = asyncio.ensure_future(self.run(**changes))
        await self.hangs.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        self.hangs_in = ""


def _listing(names: tuple[str, ...]) -> str:
    rows = [{"ContainerHierarchyTexts": [], "LeafNodeType": "It", "LeafNodeText": name} for name in names]
    return json.dumps([{"SpecReports": rows}])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("NODEWRIGHT_STATE", str(tmp_path / "state"))
    return World(tmp_path, monkeypatch)


ALL = [
    f"{part} {maker}"
    for part in ("e2e-network-conformance-01", "node-parallel-01", "node-serial-01")
    for maker in ("nodewright", "upstream")
]


async def test_every_part_runs_with_both_makers_and_the_pages_are_written(world: World, tmp_path: Path) -> None:
    made = await world.run()
    assert world.ran == ALL
    assert (world.raised, world.removed) == (2, 2)
    assert all(run.problem == "" and len(run.outcomes) == 1 for run in made.runs.values())
    assert document.read((tmp_path / "scoreboard.json").read_text(), {}).runs == made.runs
    assert "not run yet" not in (tmp_path / "scoreboard.md").read_text().split("## Parts")[1]
    await world.run()
    assert world.ran == ALL, "nothing is left"


async def test_lists_leave_nothing_where_the_command_was_given(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    await board.look(world.order, Silent())
    assert [*here.iterdir()] == []


async def test_a_run_that_was_stopped_goes_on_with_the_first_part_without_a_result(world: World) -> None:
    await world.run_until(ALL[2])
    await world.run()
    assert world.ran == [*ALL[:3], *ALL[2:]]


async def test_a_run_that_is_stopped_removes_its_cluster(world: World) -> None:
    await world.run_until(ALL[1])
    assert (world.raised, world.removed) == (2, 2)


async def test_a_part_that_cannot_run_is_a_row_and_is_tried_again_at_the_end(world: World, tmp_path: Path) -> None:
    world.stops, world.stops_in = Temporary("no room", obj="node1", step="images"), ALL[0]
    made = await world.run()
    assert world.ran == ALL and world.removed == 2
    assert made.runs["e2e-network-conformance-01", "nodewright"].problem == "node1: images: no room"
    assert "node1: images: no room" in (tmp_path / "scoreboard.md").read_text()
    world.stops = None
    made = await world.run()
    assert world.ran == [*ALL, ALL[0]]
    assert made.runs["e2e-network-conformance-01", "nodewright"].problem == ""


async def test_only_some_parts_and_again(world: World) -> None:
    await world.run(parts="^node-")
    assert world.ran == ALL[2:]
    await world.run(parts="serial", again=True)
    assert world.ran == [*ALL[2:], *ALL[4:]]


async def test_one_suite_alone_leaves_the_other_as_the_page_has_it(world: World, tmp_path: Path) -> None:
    first = await world.run()
    (tmp_path / "bin" / Program.NODE).unlink()
    made = await world.run(programs=(Program.E2E,), again=True)
    assert world.ran == [*ALL, *ALL[:2]]
    assert made.partition == first.partition and made.runs.keys() == first.runs.keys()


async def test_a_part_that_was_not_run_to_its_end_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPECS, Program.E2E, SPECS[Program.E2E][:1])
    (world.order.pages / Program.E2E).write_text(  # type: ignore[operator]  # it has a folder for pages
        _listing((*SPECS[Program.E2E], "[sig-network] Services hang [Conformance]"))
    )
    made = await world.run(parts="e2e")
    assert {run.problem for run in made.runs.values()} == {"not reached: 1 spec"}
    assert world.ran == ALL[:2]
    await world.run(parts="e2e")
    assert world.ran == ALL[:2] * 2
    assert "hang" in world.focuses[-1] and "DNS" not in world.focuses[-1], "what was not reached is tried again"


async def test_a_fresh_checkout_goes_on_with_the_results_of_the_page(world: World, tmp_path: Path) -> None:
    first = await world.run(parts="network|serial")
    made = await world.run(results=tmp_path / "here")
    assert world.ran == [*ALL[:2], *ALL[4:], *ALL[2:4]]
    assert {**made.runs, **first.runs} == made.runs


async def test_a_result_stays_when_the_spec_is_in_another_part(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.run(parts="network")
    await world.run(parts="network")
    assert world.ran == ALL[:2]
    more = (*SPECS[Program.E2E], "[sig-network] A service [Conformance]")
    monkeypatch.setitem(SPECS, Program.E2E, more)
    (world.order.pages / Program.E2E).write_text(_listing(more))  # type: ignore[operator]  # it has a folder for pages
    made = await world.run(parts="network")
    assert world.ran == [*ALL[:2], *ALL[:2]]
    run = made.runs["e2e-network-conformance-01", "upstream"]
    assert set(run.outcomes) == {more[0], more[2]} and run.problem == ""


async def test_what_fails_is_run_again_alone_and_both_results_are_kept(world: World, tmp_path: Path) -> None:
    world.fails = {"DNS": 1, "MirrorPod": 2}
    made = await world.run(parts="network|serial")
    again = [f"{ALL[0]} again", f"{ALL[4]} again"]
    assert world.ran == [ALL[0], again[0], ALL[1], ALL[4], again[1], ALL[5]]
    (flaky,) = made.runs["e2e-network-conformance-01", "nodewright"].outcomes.values()
    assert (flaky.verdict, flaky.reason, flaky.final, flaky.text) == (
        "failed",
        "no answer",
        "passed",
        "flaky: passed at 2nd try",
    )
    (broken,) = made.runs["node-serial-01", "nodewright"].outcomes.values()
    assert broken.final == "failed" and broken.second is not None and broken.second.verdict == "failed"
    assert document.read((tmp_path / "scoreboard.json").read_text(), {}).runs == made.runs
    ran = list(world.ran)
    await world.run(parts="network|serial")
    assert world.ran == ran, "there is no third try"


async def test_a_run_that_is_stopped_before_the_second_try_makes_it_later(world: World, tmp_path: Path) -> None:
    world.fails = {"DNS": 1}
    await world.run_until("again", parts="network")
    made = await world.run(parts="network", results=tmp_path / "elsewhere")
    assert world.ran == [ALL[0], f"{ALL[0]} again", ALL[1], f"{ALL[0]} again"]
    (flaky,) = made.runs["e2e-network-conformance-01", "nodewright"].outcomes.values()
    assert flaky.flaky


async def test_a_limit_of_minutes_ends_the_run_after_the_part_that_passes_it(world: World) -> None:
    await world.run(minutes=2)
    assert world.ran == ALL[:2]
    assert world.said[0] == "1 of 6: e2e-network-conformance-01, 1 spec, nodewright; about 5 min 6 s left"
    assert world.said[-1] == "2 minutes are over; left: 4 runs"
    await world.run(minutes=100)
    assert world.ran == ALL


async def test_a_defect_of_ours_ends_neither_the_other_parts_nor_well(world: World) -> None:
    world.stops, world.stops_in = ValueError("an oversight"), ALL[0]
    with pytest.raises(parts.Defect, match=r"a defect of ours: ValueError\('an oversight'\)") as raised:
        await world.run()
    assert isinstance(raised.value.__cause__, ValueError)
    assert world.ran == ALL
    world.stops = None
    await world.run()
    assert world.ran == [*ALL, ALL[0]], "it is not taken for a result"


async def test_somebodys_own_cluster_of_that_name_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "exists", lambda name: True)
    with pytest.raises(Invalid, match="not one of the scoreboard's"):
        await world.run()
    assert (world.raised, world.removed) == (0, 0)


async def test_what_a_killed_run_has_left_is_removed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "exists", lambda name: name in world.left)
    world.left = {"board", "board-2"}
    world.order.root.mkdir()
    for name in world.left:
        store.mark(world.order.root, name)
    await world.run(parts="parallel")
    assert world.removed == 2 and not world.left, "also that of a run with --at-once; the node suite removes its nodes"
    assert world.ran == ALL[2:4]
    assert store.marked(world.order.root) == ()


async def test_parts_of_the_node_suite_run_at_a_time_each_on_its_own_node(world: World) -> None:
    world.fails, world.together = {"MirrorPod": 1}, 3
    await world.run(at_once=3)
    assert sorted(world.ran) == sorted([*ALL, next(name for name in world.ran if "again" in name)])
    assert max(len(names) for names in world.beside) == 3
    assert not any(len(names) > 1 and ("e2e" in str(names) or "again" in str(names)) for names in world.beside)


STEPS = {
    "e2e": Step(Part("e2e", Group("e2e-rest", "", Match()), (Spec(Program.E2E, "a"),)), "nodewright"),
    "node": Step(Part("node", Group("node-serial", "", Match()), (Spec(Program.NODE, "b"),)), "nodewright"),
    "theirs": Step(Part("node", Group("node-serial", "", Match()), (Spec(Program.NODE, "b"),)), "upstream"),
    "again": Step(Part("node", Group("node-serial", "", Match()), (Spec(Program.NODE, "b"),)), "nodewright", True),
    "alone": Step(Part("full", Group("full", "", Match(), alone=True), (Spec(Program.NODE, "c"),)), "nodewright"),
}


@pytest.mark.parametrize(
    ("waiting", "running", "at_once", "next_one"),
    [
        pytest.param("e2e node", "", 1, "e2e", id="the first"),
        pytest.param("", "", 1, None, id="nothing waits"),
        pytest.param("theirs", "node", 1, None, id="one at a time"),
        pytest.param("theirs", "node", 2, "theirs", id="two at a time"),
        pytest.param("alone again e2e theirs", "node", 2, "theirs", id="what needs the machine waits for it"),
        pytest.param("alone again e2e", "node", 2, None, id="until nothing runs"),
        pytest.param("alone", "", 2, "alone", id="then it has its turn"),
        pytest.param("node", "again", 2, None, id="a second try is alone"),
        pytest.param("node", "e2e", 2, None, id="so is a cluster"),
    ],
)
def test_what_may_begin_beside_what_runs(waiting: str, running: str, at_once: int, next_one: str | None) -> None:
    found = next_step([STEPS[name] for name in waiting.split()], [STEPS[name] for name in running.split()], at_once)
    assert found == (STEPS[next_one] if next_one else None)


async def test_two_runs_at_once_are_refused(world: World) -> None:
    assert world.order.results is not None
    world.order.results.mkdir()
    with directory_lock(str(world.order.results)), pytest.raises(Conflict):
        await world.run()


async def test_a_cluster_that_cannot_be_removed_is_told_as_what_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came as a group of errors, which the command line shows as a defect of its own."""
    tries = 0

    async def down(name: str, *_: object) -> None:
        nonlocal tries
        tries += 1
        if tries > 1:
            raise Temporary("its link is busy", obj=name)
        world.left.clear()

    monkeypatch.setattr(state, "exists", lambda name: name in world.left or bool(world.ran))
    monkeypatch.setattr(runner, "down", down)
    world.order.root.mkdir()
    world.left = {"board"}
    store.mark(world.order.root, "board")
    with pytest.raises(Temporary, match="its link is busy"):
        await world.run(parts="parallel")


async def test_a_cluster_that_was_removed_by_hand_is_the_scoreboards_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one of that name, which was somebody's own, was removed without a question."""
    monkeypatch.setattr(state, "exists", lambda name: name in world.left)
    world.order.root.mkdir()
    store.mark(world.order.root, "mine")
    await world.run(parts="parallel")
    assert store.marked(world.order.root) == ()
