"""The bounded-frequency runner, and the supervisor of a daemon's tasks."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from nodelib.runner import BoundedFrequencyRunner
from nodelib.tasks import Supervisor, both, cancel_and_wait, in_order, side_by_side, unless
from tests.fakes.clock import FakeClock, settle


async def run_until_done(task: asyncio.Task[None]) -> None:
    await cancel_and_wait(task)


async def test_pokes_are_coalesced_and_kept_apart() -> None:
    clock, calls = FakeClock(), []

    async def work() -> None:
        calls.append(clock.monotonic())

    runner = BoundedFrequencyRunner("t", work, min_interval=1, retry_interval=0.5, max_interval=60, clock=clock)
    task = asyncio.create_task(runner.run())
    for _ in range(5):
        runner.poke()
    await settle()
    runner.poke()
    await clock.advance(0.5)
    assert calls == [0.0]
    await clock.advance(0.6)
    assert calls == [0.0, 1.0]
    await run_until_done(task)


async def test_what_takes_long_is_followed_by_a_rest() -> None:
    clock, calls = FakeClock(), []

    async def work() -> None:
        calls.append(clock.monotonic())
        await clock.sleep(0.05)

    runner = BoundedFrequencyRunner(
        "t", work, min_interval=0, retry_interval=2, max_interval=60, clock=clock, rest_factor=9, longest_rest=1
    )
    task = asyncio.create_task(runner.run())
    runner.poke()
    await clock.advance(0.06)
    runner.poke()
    await clock.advance(1)
    assert [round(one, 3) for one in calls] == [0.0, 0.5]
    await run_until_done(task)


async def test_failure_is_tried_again_and_audit_comes_without_a_poke() -> None:
    clock, calls = FakeClock(), []

    async def work() -> None:
        calls.append(clock.monotonic())
        if len(calls) == 1:
            raise RuntimeError("first one fails")

    runner = BoundedFrequencyRunner("t", work, min_interval=0, retry_interval=2, max_interval=60, clock=clock)
    task = asyncio.create_task(runner.run())
    runner.poke()
    await clock.advance(100)
    assert calls == [0.0, 2.0, 62.0]
    await run_until_done(task)


async def test_stop_list_runs_in_reverse_and_survives_a_failing_step() -> None:
    order: list[str] = []

    async def step(name: str) -> None:
        order.append(name)
        if name == "second":
            raise RuntimeError("a step that fails")

    async with Supervisor("t") as supervisor:
        for name in ("first", "second", "third"):
            supervisor.on_stop(name, lambda name=name: step(name))  # type: ignore[misc]
    assert order == ["third", "second", "first"]


async def test_critical_failure_ends_the_daemon_with_its_cause() -> None:
    async def broken() -> None:
        raise RuntimeError("cannot go on")

    async with Supervisor("t") as supervisor:
        supervisor.spawn("broken", broken, critical=True)
        with pytest.raises(RuntimeError, match="cannot go on"):
            await asyncio.wait_for(supervisor.wait(), 5)


async def test_a_task_begins_again_when_what_it_waited_for_was_cancelled(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended without a word, as if it had been stopped itself, and for as long as the daemon ran."""
    monkeypatch.setattr("nodelib.tasks._FIRST_PAUSE", 0.01)
    began, again = 0, asyncio.Event()

    async def work() -> None:
        nonlocal began
        began += 1
        if began == 1:
            other = asyncio.ensure_future(asyncio.Event().wait())
            asyncio.get_running_loop().call_soon(other.cancel)
            await other
        again.set()
        await asyncio.Event().wait()

    async with Supervisor("t") as supervisor:
        task = supervisor.spawn("loop", work)
        await asyncio.wait_for(again.wait(), 5)
        assert "t/loop failed" in caplog.text
    assert task.cancelled() and began == 2, "one that is stopped ends"


async def test_what_a_step_of_the_shutdown_cancels_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """It closes the connections, before the tasks that wait for them are stopped."""
    connection = asyncio.ensure_future(asyncio.Event().wait())

    async def close() -> None:
        connection.cancel()
        await asyncio.sleep(0.01)

    async def work() -> None:
        await connection

    async with Supervisor("t") as supervisor:
        supervisor.on_stop("connection", close)
        supervisor.spawn("loop", work)
        await asyncio.sleep(0.01)
    assert caplog.text == ""


async def test_a_task_that_nobody_owns_is_named_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async def stray() -> None:
        await asyncio.Event().wait()

    async def owned() -> None:
        await asyncio.Event().wait()

    left = asyncio.create_task(stray(), name="stray-1")
    async with Supervisor("t") as supervisor:
        supervisor.spawn("owned", owned)
        await asyncio.sleep(0)
    assert "stray-1" in caplog.text and "owned" not in caplog.text
    await run_until_done(left)


async def test_both_come_to_their_end_before_one_failure_is_raised() -> None:
    ended: list[str] = []

    async def fails() -> int:
        raise ValueError("first")

    async def goes_on() -> int:
        await asyncio.sleep(0.01)
        ended.append("second")
        return 2

    assert await both(goes_on(), goes_on()) == (2, 2)
    ended.clear()
    with pytest.raises(ValueError, match="first"):
        await both(fails(), goes_on())
    assert ended == ["second"]


async def test_a_task_that_missed_its_cancellation_is_cancelled_again() -> None:
    parts = [asyncio.get_running_loop().create_future() for _ in range(2)]
    failures: list[str] = []

    async def tries_again() -> None:
        while True:
            try:
                await asyncio.gather(*parts)
            except OSError as error:
                failures.append(str(error))
                await asyncio.Event().wait()

    task = asyncio.create_task(tries_again())
    await settle()
    parts[0].set_exception(OSError("at the same moment"))
    task.cancel()
    await settle()
    assert failures == ["at the same moment"] and not task.done()  # asyncio lost it
    await cancel_and_wait(task, again=0.05)
    assert task.cancelled()


class Stubborn:
    """Work in a loop that misses the first cancellations, as one does whose call returns at that moment."""

    def __init__(self, misses: int) -> None:
        self.misses, self.ended = misses, False

    async def run(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.misses -= 1
                if self.misses < 0:
                    self.ended = True
                    raise


async def test_what_runs_side_by_side_ends_with_its_caller_although_a_cancellation_was_missed() -> None:
    stubborn = Stubborn(1)
    caller = asyncio.create_task(side_by_side(one=stubborn.run(), other=asyncio.Event().wait()))
    await settle()
    async with asyncio.timeout(20):
        await cancel_and_wait(caller, again=0.05)
        await settle()
    assert caller.cancelled() and stubborn.ended


async def test_the_failure_of_one_ends_the_others_and_is_raised() -> None:
    other = Stubborn(0)

    async def fails() -> None:
        raise ValueError("why")

    with pytest.raises(ValueError, match="why"):
        await side_by_side(one=fails(), other=other.run())
    assert other.ended
    await side_by_side(one=asyncio.sleep(0), other=asyncio.sleep(0))


async def test_results_come_in_order_and_none_goes_on_when_one_fails() -> None:
    other, late = Stubborn(0), asyncio.Event()

    async def after(event: asyncio.Event, number: int) -> int:
        await event.wait()
        return number

    asyncio.get_running_loop().call_soon(late.set)
    assert await in_order(after(late, 1), asyncio.sleep(0, 2)) == [1, 2] and await in_order() == []
    with pytest.raises(ZeroDivisionError):
        await in_order(other.run(), asyncio.to_thread(lambda: 1 // 0))
    assert other.ended


async def test_work_goes_on_unless_the_event_is_set() -> None:
    event, work = asyncio.Event(), Stubborn(0)
    asyncio.get_running_loop().call_soon(event.set)
    await unless(event, work.run())
    assert work.ended
    assert await unless(asyncio.Event(), asyncio.sleep(0, "done")) == "done"


async def test_a_stop_step_without_end_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn(1_000)
    async with asyncio.timeout(20):
        async with Supervisor("d", stop_timeout=0.05) as supervisor:
            supervisor.on_stop("step", stubborn.run)
    assert "stop step d/step took longer than 0.05 s" in caplog.text and "Stubborn.run" in caplog.text
    stubborn.misses = 0  # it is cancelled when the loop ends


async def test_how_cancelled_tasks_end_is_of_no_interest() -> None:
    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("on the way out")

    tasks = [asyncio.create_task(fails()), asyncio.create_task(asyncio.sleep(0))]
    await settle()
    await cancel_and_wait(*tasks)
    assert all(task.done() for task in tasks)


async def test_the_end_of_a_fork_by_a_signal_is_not_the_daemon_s() -> None:
    """pyroute2 forks for each network namespace, and ends the fork so."""
    async with Supervisor("test") as supervisor:
        supervisor.stop_on_signals()
        alive, writer = os.pipe()
        child = os.fork()
        if not child:
            os.write(writer, b"1")
            for _ in range(100):
                time.sleep(0.1)
            os._exit(0)
        await asyncio.to_thread(os.read, alive, 1)
        os.kill(child, signal.SIGTERM)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
        for _ in range(10):
            await asyncio.sleep(0)
        assert not supervisor.stopping.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(supervisor.wait(), 5)
