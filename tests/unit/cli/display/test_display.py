"""The progress of steps, as plain lines and as a live table."""

from __future__ import annotations

import asyncio
import importlib
import io
import os
import re
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.app import app
from cli.display.quiet import quietly
from cli.display.steps import Display
from controlplane.cluster.model import Cluster, Options


def test_plain_lines_show_each_step_its_detail_and_time() -> None:
    out = io.StringIO()
    with Display(plain=True, out=out) as display, display.step("links") as say:
        say("2 nodes")
    assert re.fullmatch(r" +\d\.\d\d s  ok     links \(2 nodes\)  \[\d\.\d\d s\]\n", out.getvalue())


def test_a_long_step_says_what_it_does_and_does_not_repeat_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("cli.display.steps.time.monotonic", lambda: now[0])
    out = io.StringIO()
    with Display(plain=True, out=out) as display, display.step("build") as say:
        say("fetching")
        now[0] += 4
        for text in ("compiling", "compiling", "linking"):
            say(text)
        now[0] += 1
    assert out.getvalue().splitlines() == [
        "  build: compiling",
        "  build: linking",
        "   5.00 s  ok     build (linking)  [5.00 s]",
    ]


def test_a_failed_step_is_marked() -> None:
    out = io.StringIO()
    with Display(plain=True, out=out) as display, pytest.raises(ValueError), display.step("links"):
        raise ValueError
    assert re.fullmatch(r" +\d\.\d\d s  FAILED links  \[\d\.\d\d s\]\n", out.getvalue())


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "live"])
def test_a_step_that_ctrl_c_cuts_off_has_not_failed(plain: bool, error: type[BaseException]) -> None:
    out = io.StringIO()
    with Display(plain=plain, out=out) as display, pytest.raises(error), display.step("build") as say:
        say("5 of 9")
        raise error
    assert "interrupted" in out.getvalue() and "5 of 9" in out.getvalue()
    assert "FAILED" not in out.getvalue() and "✗" not in out.getvalue()


def test_the_step_that_others_are_cut_off_for_has_failed() -> None:
    async def work(display: Display) -> None:
        async def fails() -> None:
            with display.step("one"):
                raise ValueError

        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            with display.step("other"):
                await asyncio.Event().wait()

    out = io.StringIO()
    with Display(plain=True, out=out) as display, pytest.raises(ExceptionGroup):
        asyncio.run(work(display))
    assert [line.split()[2:4] for line in out.getvalue().splitlines()] == [["FAILED", "one"], ["interrupted", "other"]]


def test_a_file_is_no_terminal() -> None:
    assert Display(out=io.StringIO()).plain


def test_the_live_table_shows_every_step() -> None:
    out = io.StringIO()
    with Display(plain=False, out=out) as display, display.step("links") as say:
        say("2 nodes")
    assert "✓" in out.getvalue() and "links" in out.getvalue() and "2 nodes" in out.getvalue()


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "live"])
def test_a_quiet_display_prints_nothing_and_still_measures(plain: bool) -> None:
    out = io.StringIO()
    with quietly(True), Display(plain=plain, out=out) as display, display.step("one") as say:
        say("half way")
    assert out.getvalue() == ""
    assert [step.title for step in display.steps] == ["one"] and display.elapsed > 0
    assert not Display(plain=True, out=out).quiet, "silence ends with the command that asked for it"


def test_quiet_reaches_the_display_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []
    monkeypatch.setattr("cli.commands.package.run", lambda folder, plain: heard.append((plain, Display().quiet)))
    for given in ([], ["--quiet"], ["-q", "--plain"]):
        assert CliRunner().invoke(app, ["package", *given]).exit_code == 0
    assert heard == [(False, False), (False, True), (True, True)]


async def _made(*_: Any) -> Any:
    """The result of any work: a cluster of one node."""
    return SimpleNamespace(containers=0, processes=0, kubeconfigs=(), anything=True, nodes=(), cluster=None)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is told that root is needed")
@pytest.mark.parametrize(
    ("line", "work"),
    [
        ("stop", "controlplane.cluster.work.stop.stop"),
        ("down", "cli.commands.down.down"),
        ("addons remove metrics", "cli.commands.addons._remove"),
        ("node remove node2", "cli.commands.node.node_removal.remove"),
        ("leave", "cli.commands.join.leave"),
    ],
)
def test_quiet_leaves_out_how_it_went(line: str, work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Cluster("lab", "10.89.3.0/24", Options(nodes=2))
    importlib.import_module(work.rpartition(".")[0].removesuffix(".node_removal"))
    monkeypatch.setattr(work, _removed if work.endswith("_remove") else _made)
    for there in ("clusters.find", "addons.reachable", "node.find", "node.reachable", "node.refuse_if_stopped"):
        monkeypatch.setattr(f"cli.commands.{there}", lambda name: known)
    words = line.split()
    loud, quiet = (CliRunner().invoke(app, [*words, *more, "--plain"]) for more in ([], ["--quiet"]))
    assert (loud.exit_code, quiet.exit_code) == (0, 0), loud.output + quiet.output
    assert loud.stdout and not quiet.stdout


async def _removed(*_: Any) -> list[str]:
    return ["metrics"]
