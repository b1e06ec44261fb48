"""`nodewright bench services`: our proxy and, with --peer, upstream's, on the same API server and objects."""

from __future__ import annotations

import asyncio
import datetime
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cli.bench import plot
from cli.bench.services import results
from cli.bench.services.environment import answering_pods, node_object, populate
from cli.bench.services.measure import Effort, Measurement
from cli.bench.services.objects import Size
from cli.bench.services.results import Result
from cli.bench.services.subject import Subject
from cli.commands.bench.publish import DOCS, commit, show_sized, write_sized_section
from cli.display.steps import Display, Say
from cli.display.terminal import new_console
from cli.errors import need_root
from controlplane.binaries.work import ensure
from controlplane.cluster.edge import lab as edge
from controlplane.cluster.edge.lab import Lab, Space
from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import KUBERNETES_VERSION
from nodelib.clock import SystemClock
from nodelib.errors import NodewrightError, WrongUsage
from nodelib.kube.client import KubeClient

STEPS = ("cold", "change", "churn", "path")
_NOTES = (
    "`./nodewright bench services --peer upstream --write` (parts: `--sizes`, `--modes`, `--steps`, `--dense`). Both"
    " with their default intervals, each in a network namespace of its own on one API server; how each figure is"
    " taken: `cli/bench/services/measure.py`. 2 cores, Debian 12, kernel 6.18.\n\n"
    "![cold sync by number of Services](bench-services.svg)"
)


@dataclass(frozen=True, slots=True)
class Request:
    """What one run of the command is to measure."""

    makers: tuple[str, ...]
    modes: tuple[str, ...]
    sizes: tuple[Size, ...]
    steps: tuple[str, ...]
    effort: Effort


def request(*, peer: bool, modes: str, sizes: str, steps: str, dense: bool, effort: Effort) -> Request:
    """Read the command's options. Raises Invalid."""
    chosen = tuple(step for step in steps.split(",") if step)
    for step in chosen:
        if step not in STEPS:
            raise WrongUsage(
                f"unknown step {step!r}",
                obj="--steps",
                step="read the options",
                action=f"The steps are {', '.join(STEPS)}.",
            )
    counts = [Size(number) for number in numbers(sizes)]
    every = (*counts, Size(5000, 50)) if dense else tuple(counts)
    makers = ("nodewright", "upstream") if peer else ("nodewright",)
    return Request(makers, tuple(modes.split(",")), every, chosen, effort)


def numbers(sizes: str) -> list[int]:
    """Of the option --sizes. Raises Invalid."""
    try:
        return [int(part) for part in sizes.split(",") if part]
    except ValueError as error:
        raise WrongUsage(str(error), obj="--sizes", step="read the options", action="As in 1000,10000.") from error


def run(wanted: Request, *, write: bool, plain: bool, binaries: Path | None) -> None:
    """Measure, print the table, and write values, table and plot into docs/ if `write`."""
    need_root("bench")
    cache = Path(cache_root())
    names = ["etcd", "kube-apiserver", *(["kube-proxy"] if "upstream" in wanted.makers else [])]
    with Display(plain=plain or None) as display:
        with display.step("binaries") as say:
            paths = ensure(names, cache_dir=cache, progress=say, binaries_dir=binaries)
        edge.enter()
        # Written after each proxy: a run that is interrupted loses only one.
        keep = _write if write else _discard
        found, failed = asyncio.run(_measure(wanted, paths.path("etcd").parent, display, keep))
    show_sized(results.rows(found))
    for message in failed:
        new_console(sys.stderr).print(message, style="red")
    raise SystemExit(1 if failed else 0)


async def _measure(
    wanted: Request, binaries: Path, display: Display, keep: Callable[[list[Result]], None]
) -> tuple[list[Result], list[str]]:
    lab = Lab(Path(tempfile.mkdtemp(prefix="nodewright-bench-")), binaries, SystemClock())
    try:
        await lab.prepare()
        rounds = _Rounds(wanted, lab, await answering_pods(lab), binaries, display, keep)
        for size in wanted.sizes:
            with display.step(f"{size} Services") as say:
                await populate(lab, size, say)
            fresh = random.Random(size.services).sample(range(size.services), size.services)
            try:
                async with KubeClient(lab.access, user_agent="nodewright-bench") as client:
                    await client.post("/api/v1/nodes", node_object())
                    for mode in wanted.modes:
                        await rounds.run(size, mode, client, fresh)
            finally:
                await lab.stop_servers()
    finally:
        await lab.close()
    return rounds.found, rounds.failed


@dataclass(slots=True)
class _Rounds:
    """Measures all makers in one mode at one size after the other; `found` and `failed` grow."""

    wanted: Request
    lab: Lab
    pods: Space
    binaries: Path
    display: Display
    keep: Callable[[list[Result]], None]
    found: list[Result] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    number: int = 1

    async def run(self, size: Size, mode: str, client: KubeClient, fresh: list[int]) -> None:
        """Measure each maker's proxy alone, then in turns the packet path through the rules that they left behind."""
        clock, effort = SystemClock(), self.wanted.effort
        subjects = [Subject(self.lab, one, mode, self.binaries / "kube-proxy", clock) for one in self.wanted.makers]
        runs = [Measurement(self.lab, client, one, size, clock, effort, fresh) for one in subjects]
        try:
            for subject, run in zip(subjects, runs, strict=True):
                await self._alone(subject, run, size)
            if "path" in self.wanted.steps:
                with self.display.step(f"path, {mode}, {size} Services"):
                    for run in runs * effort.turns:
                        await run.path()
        finally:
            for subject in subjects:
                await subject.close()
        for subject, run in zip(subjects, runs, strict=True):
            taken = _results(mode, size, subject.maker, run)
            self.found += taken
            self.keep(taken)
        # The kernel takes its time to remove a namespace with 100,000 rules.
        await clock.sleep(2)

    async def _alone(self, subject: Subject, run: Measurement, size: Size) -> None:
        self.number += 1
        name = f"{subject.maker} {subject.mode}, {size} Services"
        with self.display.step(name) as say:
            try:
                await subject.open(self.number, self.pods)
                await _walk(run, self.wanted.steps, say)
            except NodewrightError as error:
                self.failed.append(f"{name}: {error}")
            finally:
                await subject.leave()
        self.keep(_results(subject.mode, size, subject.maker, run))


async def _walk(run: Measurement, steps: Sequence[str], say: Say) -> None:
    say("cold sync")
    await run.cold()
    if "change" in steps:
        await run.change(say)
    if "churn" in steps:
        await run.churn(say)
    if "path" in steps:
        await run.prepare_path()


def _results(mode: str, size: Size, maker: str, run: Measurement) -> list[Result]:
    today, at = str(datetime.date.today()), commit()
    return [
        Result(mode, size.services, size.endpoints, name, maker, float(f"{value:.4g}"), today, at, name in run.at_least)
        for name, value in run.values.items()
    ]


def _discard(found: list[Result]) -> None:
    """Without --write the printed table is all there is."""


def _write(found: list[Result]) -> None:
    kept = DOCS / "bench-services.json"
    every = results.merged(results.load(kept), found)
    results.save(kept, every)
    curves = results.curves(every, "cold sync")
    (DOCS / "bench-services.svg").write_text(plot.chart(curves, "Cold sync of the proxy, two endpoints a Service"))
    heading = f"Services, upstream kube-proxy {KUBERNETES_VERSION}"
    write_sized_section(results.rows(every), heading, _NOTES)
