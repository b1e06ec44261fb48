"""A gate lets a few callers in at a time, by priority, and takes the place of one that hangs."""

from __future__ import annotations

import asyncio
import time

from agent.common.work.gate import Gate
from nodelib.tasks import cancel_and_wait
from tests.fakes.clock import settle


async def test_places_are_given_in_turn() -> None:
    gate, order, go = Gate(2), list[int](), asyncio.Event()

    async def one(number: int) -> None:
        async with gate.place():
            order.append(number)
            await go.wait()

    tasks = [asyncio.create_task(one(number)) for number in range(5)]
    await settle()
    assert order == [0, 1]
    tasks[2].cancel()  # waits: gives up its turn
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1, 3, 4]
    assert await entering_at_once(gate, 4) == 2, "as many places as before"


async def test_a_caller_that_is_cancelled_with_all_others_is_cancelled_and_nothing_else() -> None:
    """As all starts of a pod are when it is deleted: that is no failure of theirs."""
    gate = Gate(1, longest=None)

    async def one() -> None:
        async with gate.place(group="shop"):
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(one()) for _ in range(3)]
    await settle()
    await cancel_and_wait(*tasks)
    assert [task.cancelled() for task in tasks] == [True, True, True]
    assert await entering_at_once(gate, 3) == 1


async def test_a_caller_that_hangs_loses_its_place() -> None:
    gate, entered = Gate(1, longest=0.01), list[str]()

    async def hang() -> None:
        async with gate.place():
            entered.append("hanging")
            await asyncio.Event().wait()

    async def other() -> None:
        async with gate.place():
            entered.append("other")

    hanging = asyncio.create_task(hang())
    await settle()
    async with asyncio.timeout(10):
        await other()
    assert entered == ["hanging", "other"] and not hanging.done()
    await cancel_and_wait(hanging)
    # Its place was given back once, when its time was over, and not again when it left.
    assert await entering_at_once(gate, 3) == 1


async def test_callers_enter_by_priority_and_equals_in_the_order_they_came() -> None:
    gate, order = Gate(1, longest=None), list[str]()
    go = asyncio.Event()

    async def one(who: str, priority: int) -> None:
        async with gate.place(priority, who):
            order.append(who)
            await go.wait()

    asked = {"first": 0, "low": 0, "high": 1000, "lower": -5, "low too": 0, "high too": 1000}
    tasks = [asyncio.create_task(one(who, priority)) for who, priority in asked.items()]
    await settle()
    assert [gate.turn_of(who) for who in asked] == [0, 3, 1, 5, 4, 2]
    tasks[2].cancel()
    await settle()
    assert gate.turn_of("high too") == 1
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["first", "high too", "low", "low too", "lower"]
    assert gate.turn_of("low") == 0


async def test_groups_take_turns() -> None:
    gate, order = Gate(1, longest=None), list[str]()
    go = asyncio.Event()

    async def one(who: str, group: str, priority: int = 0) -> None:
        async with gate.place(priority, who, group):
            order.append(who)
            await go.wait()

    async def ask(*callers: tuple[str, str]) -> list[asyncio.Task[None]]:
        found = [asyncio.create_task(one(who, group)) for who, group in callers]
        await settle()
        return found

    tasks = await ask(*((f"many {number}", "many") for number in range(5)), ("one", "single"), ("two", "other"))
    assert [gate.turn_of(who) for who in ("one", "two", "many 1", "many 4")] == [1, 2, 3, 6]
    tasks += [asyncio.create_task(one("urgent", "many", 10))]
    await settle()
    go.set()
    await asyncio.gather(*tasks)
    assert order == ["many 0", "urgent", "one", "two", "many 1", "many 2", "many 3", "many 4"]
    assert gate._served == {}, "nothing is kept of groups without callers"


async def test_a_group_whose_callers_hang_does_not_keep_the_others_waiting() -> None:
    gate, entered = Gate(1, longest=0.02), list[str]()

    async def hang(number: int) -> None:
        async with gate.place(0, number, "hanging"):
            entered.append(f"hanging {number}")
            await asyncio.Event().wait()

    hanging = [asyncio.create_task(hang(number)) for number in range(50)]
    await settle()
    async with asyncio.timeout(10), gate.place(0, "other", "other"):
        assert entered == ["hanging 0"]
    await cancel_and_wait(*hanging)


async def test_a_group_whose_callers_stay_by_right_gets_its_turns() -> None:
    """Commands may run for hours: with eight open in a namespace, it began no other one while another began many."""
    gate, entered, done = Gate(2, longest=0.01, counts_late=False), list[str](), asyncio.Event()

    async def stay() -> None:
        async with gate.place(group="builds"):
            await done.wait()

    async def come_again() -> None:
        while not done.is_set():
            async with gate.place(group="other"):
                entered.append("other")
                await asyncio.sleep(0)

    staying = [asyncio.create_task(stay()) for _ in range(8)]
    await asyncio.sleep(0.2)
    coming = [asyncio.create_task(come_again()) for _ in range(6)]
    await settle()
    async with asyncio.timeout(10):
        before = len(entered)
        async with gate.place(group="builds"):
            assert len(entered) - before <= 4, "two places"
        done.set()
        await asyncio.gather(*staying, *coming)
    assert (gate._served, gate._inside, await entering_at_once(gate, 4)) == ({}, {}, 2)


async def test_a_caller_that_gives_up_leaves_nothing_behind() -> None:
    """A pull may hold its place for an hour, while one pod after the other comes and goes."""
    gate = Gate(1, longest=None)
    async with gate.place():
        for _ in range(3):
            task = asyncio.create_task(_enter(gate))
            await settle()
            await cancel_and_wait(task)
        assert gate.waiting == 0
    assert await entering_at_once(gate, 3) == 1


async def entering_at_once(gate: Gate, callers: int) -> int:
    """How many of so many callers are in before any of them leaves."""
    inside, leave = list[int](), asyncio.Event()

    async def one(number: int) -> None:
        async with gate.place():
            inside.append(number)
            await leave.wait()

    tasks = [asyncio.create_task(one(number)) for number in range(callers)]
    await settle()
    found = len(inside)
    leave.set()
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks)
    assert sorted(inside) == list(range(callers)), "all get in in the end"
    return found


async def _enter(gate: Gate) -> None:
    async with gate.place():
        pass


async def test_thousands_of_one_pod_that_wait() -> None:
    """All were put in order whenever one left, 0.02 s with 15,000, and for each of them when somebody asked `why`."""
    gate, go, count = Gate(32, longest=None), asyncio.Event(), 15_000

    async def one(number: int) -> None:
        async with gate.place(0, number, "shop"):
            await go.wait()

    tasks = [asyncio.create_task(one(number)) for number in range(count)]
    await settle()
    assert gate.turns()[count - 1] == gate.turn_of(count - 1) == count - 32 == gate.waiting
    began = time.process_time()
    for task in tasks[5000:10_000]:
        task.cancel()
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert time.process_time() - began < 5
    assert (gate.waiting, gate._served, await entering_at_once(gate, 40)) == (0, {}, 32)
