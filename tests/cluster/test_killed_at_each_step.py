"""The agent, or containerd, is killed at every step that a pod takes through the runtime: before each call, while the
runtime does it, before the answer comes and after it. A container that has started runs on, and one that has not is no
restart. A pod has one sandbox, and no shim is left behind.

The agent under the knife is always a young one (it has just been killed and is taking its pods over): the most is
under way then. The calls go through tests/cri_proxy.py, which, as containerd does, cancels them when their caller goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tests.cluster.faulty_runtime import behind_proxy
from tests.cluster.restart_report import restart_report
from tests.cluster.shims import assert_no_stray_shim, strays
from tests.cluster.start_notes import noted, remove_notes, started_more_than_once, started_unended
from tests.cluster.world import Object, World, is_ready, status_of
from tests.cri_proxy import Moment
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
]

NODE = "node1"
_EVERY = bool(int(os.environ.get("NODEWRIGHT_SOAK", "0")))


@dataclass(frozen=True)
class Step:
    """`part`: of the time that the call took of a pod that was left alone, when `moment` is UNDER_WAY.
    `nth`: how many such calls of the pod there are before it."""

    method: str
    moment: Moment
    part: float = 0.0
    nth: int = 0

    def __str__(self) -> str:
        where = f" {self.part:.0%}" if self.moment is Moment.UNDER_WAY else ""
        return f"{self.method}{f' {self.nth + 1}' if self.nth else ''} {self.moment.value}{where}"


def _steps(method: str, *parts: float, nth: int = 0) -> list[Step]:
    under_way = [Step(method, Moment.UNDER_WAY, part, nth) for part in parts]
    others = [Step(method, moment, 0, nth) for moment in (Moment.ASKED, Moment.DONE, Moment.ANSWERED)]
    return [others[0], *under_way, *others[1:]]


_FEW, _MANY = (0.2, 0.5, 0.8), tuple(part / 16 for part in range(1, 16))
STARTS = _steps("StartContainer", *(_MANY if _EVERY else _MANY[::3]))
SANDBOXES = _steps("RunPodSandbox", *(_MANY if _EVERY else _MANY[1::3]))
MAKES = [
    *SANDBOXES,
    *_steps("PodSandboxStatus"),
    *_steps("CreateContainer", *_FEW),
    *_steps("ContainerStatus"),
    *_steps("ExecSync", 0.5),
]
RESTARTS = [*_steps("CreateContainer", *_FEW, nth=1), *_steps("StartContainer", *_MANY, nth=1)]
ENDS = [
    *_steps("StopContainer", *_FEW),
    *_steps("StopPodSandbox", *_FEW),
    *_steps("RemoveContainer", *_FEW),
    *_steps("RemovePodSandbox", *_FEW),
]


class Knife:
    """Kills a program at one step of one pod, once; a pod that is left alone tells how long the calls take."""

    def __init__(self, world: World, program: str) -> None:
        self._world, self.program = world, program
        self.pod, self.step = "", Step("", Moment.ASKED)
        self.took: dict[str, float] = {}
        self.struck = False
        self._calls, self._began = dict[str, int](), dict[str, float]()

    def aim(self, pod: str, step: Step) -> None:
        self.pod, self.step, self.struck = pod, step, False
        self._calls.clear()

    async def on_moment(self, method: str, pod: str, moment: Moment) -> None:
        if pod != self.pod:
            return
        if moment is Moment.ASKED:
            self._calls[method] = self._calls.get(method, 0) + 1
        elif moment is Moment.UNDER_WAY:
            self._began[method] = time.monotonic()
        elif moment is Moment.DONE and method not in self.took:
            self.took[method] = time.monotonic() - self._began[method]
        aimed = self.step.method == method and self.step.moment is moment and self._calls[method] == self.step.nth + 1
        if not aimed or self.struck:
            return
        self.struck = True
        if moment is Moment.UNDER_WAY:
            await asyncio.sleep(self.step.part * self.took.get(method, 0.1))
        await self._world.kill(NODE, self.program)


@contextlib.asynccontextmanager
async def under_the_knife(world: World, program: str) -> AsyncIterator[Knife]:
    knife = Knife(world, program)
    async with behind_proxy(world, NODE) as proxy:
        proxy.on_moment = knife.on_moment
        try:
            yield knife
        finally:
            proxy.on_moment = None


def living(name: str) -> Object:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 5}
    return noted(name, NODE, "sleep 3600 & wait", readinessProbe=probe)


def dying_once(name: str) -> Object:
    """It ends by itself the first time, and lives on when it was started again."""
    again = "if [ $(grep -c . /starts/{0}) -gt 1 ]; then sleep 3600 & wait; fi; rm -rf /starts/{0}.runs; exit 1"
    return noted(name, NODE, again)


async def struck(world: World, knife: Knife, obj: Object, step: Step, restarts: int = 0) -> list[str]:
    """What is wrong with a pod that is made by an agent that is killed at `step`, and again taken away."""
    name = obj["metadata"]["name"]
    knife.aim("", step)
    await world.kill(NODE, "agent")
    knife.aim(name, step)
    await world.create(obj)
    wrong = list[str]()
    shown = await world.until(name, lambda one: is_ready(one) and status_of(one)["restartCount"] >= restarts, "Ready")
    if step in ENDS:
        await world.delete(name)
        await world.gone(name)
    with contextlib.suppress(AssertionError):
        await until(lambda: knife.struck, 40)  # records are removed some time after the pod has gone
    if not knife.struck:
        wrong.append("it never happened")
    if status_of(shown)["restartCount"] != restarts:
        wrong.append("the pod shows a restart")
    if (count := (await started_more_than_once(world, NODE, name)).get(name, 1)) != restarts + 1:
        wrong.append(f"started {count} times")
    if knife.program == "agent":
        wrong += await _made_twice(world, name, step)
    if name in await started_unended(world, NODE):
        wrong.append("a start was killed, or two ran at once")
    if wrong:
        wrong = [f"{step}: {', '.join(wrong)}\n{await restart_report(world, NODE, shown)}"]
    if step not in ENDS:
        await world.delete(name)
        await world.gone(name)
    return wrong


async def _made_twice(world: World, name: str, step: Step) -> list[str]:
    wrong, events = list[str](), await world.events(name)
    boxes = [one.attempt for one in await world.sandboxes(NODE) if one.name == name]
    if step not in ENDS and boxes != [0]:
        wrong.append(f"sandboxes of the attempts {boxes}")
    wrong += [one["message"] for one in events if one["reason"] == "FailedCreatePodSandBox"]
    return wrong


async def assert_unnoticed(
    world: World, kind: str, steps: list[Step], restarts: int = 0, program: str = "agent"
) -> None:
    """Kill the program at each of the steps: at the N-th of the pod called `kind`-N."""
    before, wrong = await world.left(NODE), list[str]()
    stray = await strays(world, NODE)
    make = dying_once if restarts else living
    try:
        async with under_the_knife(world, program) as knife:
            knife.aim(f"{kind}-alone", Step("", Moment.ASKED))
            await world.run(living(f"{kind}-alone"))
            await world.delete(f"{kind}-alone")
            await world.gone(f"{kind}-alone")
            for number, step in enumerate(steps):
                wrong += await struck(world, knife, make(f"{kind}-{number}"), step, restarts)
    finally:
        await remove_notes(world, NODE)
    world.stats.append(
        (f"{kind}: kills of {program} at exact steps, unnoticed", f"{len(steps) - len(wrong)} of {len(steps)}")
    )
    assert not wrong, "\n".join(wrong)
    await world.nothing_beyond(NODE, before)
    await assert_no_stray_shim(world, NODE, stray)


async def test_a_kill_at_any_moment_of_a_start(world: World) -> None:
    await assert_unnoticed(world, "start", STARTS)


async def test_a_kill_while_a_sandbox_is_made(world: World) -> None:
    """A call that is cancelled with its caller would leave the shim that it has started."""
    await assert_unnoticed(world, "sandbox", SANDBOXES)


@pytest.mark.soak
@pytest.mark.skipif(not _EVERY, reason="runs by hand: NODEWRIGHT_SOAK=1")
@pytest.mark.parametrize(
    ("kind", "steps", "restarts"), [("make", MAKES, 0), ("restart", RESTARTS, 1), ("end", ENDS, 0)]
)
async def test_a_kill_at_each_step(world: World, kind: str, steps: list[Step], restarts: int) -> None:
    await assert_unnoticed(world, kind, steps, restarts)


@pytest.mark.soak
@pytest.mark.skipif(not _EVERY, reason="runs by hand: NODEWRIGHT_SOAK=1")
@pytest.mark.parametrize(("kind", "steps"), [("made", MAKES), ("started", STARTS), ("ended", ENDS)])
async def test_a_kill_of_the_runtime_at_each_step(world: World, kind: str, steps: list[Step]) -> None:
    # Once the runtime has gone, no answer of it can come late.
    asked = [one for one in steps if one.moment is not Moment.DONE]
    await assert_unnoticed(world, kind, asked, program="containerd")
