"""Long-lived tasks with a name, an owner and a guard, and an ordered shutdown.

A daemon has one Supervisor. A task that ends or raises unasked is a bug: it is logged with its name and started again
after a growing pause. If it is critical, it ends the daemon instead, and systemd (or `up`'s supervisor) restarts that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from types import TracebackType
from typing import Any, TypeVar

from nodelib.backoff import Backoff
from nodelib.shortage import describe, is_shortage

log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]
T = TypeVar("T")
U = TypeVar("U")
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_CANCEL_AGAIN = 5.0  # seconds, more than what a task does on its way out
_DEEPEST = 20  # calls that are named of a task that goes on


class Supervisor:
    """Owns the tasks of one daemon. Leaving the `async with` block runs the stop list, last added first."""

    def __init__(self, name: str, *, stop_timeout: float = 10) -> None:
        self.name = name
        self.stopping = asyncio.Event()
        self._stop_timeout = stop_timeout
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stops: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Supervisor:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    def spawn(self, name: str, work: Work, *, critical: bool = False) -> asyncio.Task[None]:
        """Start `work` under `name`; it is expected to run until cancelled."""
        task = asyncio.create_task(self._guard(name, work, critical), name=f"{self.name}/{name}")
        self._tasks[name] = task
        return task

    def once(self, name: str, work: Work) -> asyncio.Task[None]:
        """Start work that ends by itself. A failure is logged."""
        task = asyncio.create_task(self._once(name, work), name=f"{self.name}/{name}")
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._remove(name, done))
        return task

    def on_stop(self, name: str, action: Callable[[], Awaitable[None]]) -> None:
        """Add a step to the shutdown, which runs the steps in reverse order of their addition."""
        self._stops.append((name, action))

    def stop_on_signals(self, *signals: signal.Signals) -> None:
        """SIGTERM and SIGINT, or the given signals, start the shutdown."""
        loop = asyncio.get_running_loop()
        chosen = signals or (signal.SIGTERM, signal.SIGINT)
        for number in chosen:
            loop.add_signal_handler(number, self.stopping.set)
        os.register_at_fork(after_in_child=lambda: _forget(chosen))

    async def wait(self) -> None:
        """Wait for the shutdown to start. Raises the error of a critical task that failed."""
        await self.stopping.wait()
        if self._failure is not None:
            raise self._failure

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`, or None if the shutdown starts first."""
        return await unless(self.stopping, work)

    def _remove(self, name: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]

    async def _once(self, name: str, work: Work) -> None:
        try:
            await work()
        except Exception:
            log.exception("task %s/%s failed", self.name, name)

    async def _guard(self, name: str, work: Work, critical: bool) -> None:
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while not self.stopping.is_set():
            try:
                await work()
                log.error("task %s/%s ended unexpectedly", self.name, name)
            except asyncio.CancelledError:
                if is_cancelled() or self.stopping.is_set():  # steps of the shutdown close what tasks wait for
                    raise
                log.exception("task %s/%s failed: what it waited for was cancelled", self.name, name)
                if critical:
                    self._failure = RuntimeError(f"{name}: what it waited for was cancelled")
            except Exception as error:
                if is_shortage(error):
                    log.error("task %s/%s failed: %s", self.name, name, describe(error))
                else:
                    log.exception("task %s/%s failed", self.name, name)
                if critical:
                    self._failure = error
            if critical:
                self.stopping.set()
                return
            await asyncio.sleep(pause.next())

    async def _stop(self) -> None:
        self.stopping.set()
        for name, action in reversed(self._stops):
            step = asyncio.ensure_future(action())
            await asyncio.wait({step}, timeout=self._stop_timeout)
            if not step.done():
                log.error(
                    "stop step %s/%s took longer than %g s and was abandoned: %s",
                    self.name,
                    name,
                    self._stop_timeout,
                    _where(step)[1],
                )
                step.cancel()
            elif not step.cancelled() and (error := step.exception()) is not None:
                log.error("stop step %s/%s failed", self.name, name, exc_info=error)
        await cancel_and_wait(*self._tasks.values())
        await asyncio.sleep(0)  # tasks that these have cancelled end now
        left = sorted(_described(task) for task in asyncio.all_tasks() if task is not asyncio.current_task())
        if left:
            log.warning("%s: tasks without an owner still run: %s", self.name, ", ".join(left))


def _forget(signals: Iterable[signal.Signals]) -> None:
    """A fork has the descriptor by which the loop hears of signals: ended by one (pyroute2 forks for each namespace and
    ends it so), it would stop its parent."""
    signal.set_wakeup_fd(-1)
    for number in signals:
        signal.signal(number, signal.SIG_DFL)


def _described(task: asyncio.Task[Any]) -> str:
    work = task.get_coro()
    return f"{task.get_name()} ({getattr(work, '__qualname__', work)})"


def _where(task: asyncio.Future[Any]) -> tuple[str, str]:
    """Its name, and what it waits for, from the outside in."""
    chain: list[str] = []
    work: Any = task.get_coro() if isinstance(task, asyncio.Task) else None
    while work is not None and len(chain) < _DEEPEST:
        frame = getattr(work, "cr_frame", None)
        line = f":{frame.f_lineno}" if frame is not None else ""
        chain.append(f"{getattr(work, '__qualname__', type(work).__name__)}{line}")
        work = getattr(work, "cr_await", None)
    return (task.get_name() if isinstance(task, asyncio.Task) else repr(task)), " > ".join(chain)


async def cancel_and_wait(*tasks: asyncio.Future[Any], again: float = _CANCEL_AGAIN) -> None:
    """Cancel the tasks and wait until each has ended; how they ended is of no interest.

    A task may miss a cancellation: gather() raises the failure of one of its parts although it was cancelled at that
    moment, and wait_for() before Python 3.12 returns a result that is just there
    (https://github.com/python/cpython/issues/86296). A loop that tries again would go on for ever. So a task that has
    not ended is cancelled again every `again` seconds, and when the caller is cancelled, which then does not wait.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        try:
            _, left = await asyncio.wait(left, timeout=again)
        except asyncio.CancelledError:
            for task in left:
                task.cancel()
            raise
        for task in left:
            log.warning("%s was cancelled and goes on: %s", *_where(task))
    for task in tasks:
        if not task.cancelled():
            task.exception()  # or asyncio reports that nobody asked for it


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or None if the event is set first: then `work` has been cancelled, and has ended."""
    task, until = asyncio.create_task(work), asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, until}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        await cancel_and_wait(task, until)


async def side_by_side(**works: Coroutine[Any, Any, object]) -> None:
    """Run them, each in a task of that name, until all have ended or one fails. Raises its error.

    As with asyncio.TaskGroup the others are cancelled then, or when the caller is; but each until it has ended. A group
    cancels its tasks once, and one that misses that keeps it, and the daemon that stops, for ever.
    """
    await all_of([asyncio.create_task(work, name=name.replace("_", " ")) for name, work in works.items()])


async def all_of(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Until all have ended or one fails. Raises its error; as asyncio.gather() does, but none of the others goes on."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION) if tasks else (set(), set())
        for task in tasks:
            if task in done:
                task.result()
    finally:
        await cancel_and_wait(*tasks)


async def in_order(*works: Coroutine[Any, Any, T]) -> list[T]:
    """The results of all, which run concurrently, in the order of the arguments. Fails as all_of() does."""
    tasks = [asyncio.create_task(work) for work in works]
    await all_of(tasks)
    return [task.result() for task in tasks]


async def both(one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Run both concurrently, each to its end. Raises the error of the first, or else of the second."""
    first, second = await asyncio.gather(one, other, return_exceptions=True)
    for found in (first, second):
        if isinstance(found, BaseException):
            raise found
    return first, second  # type: ignore[return-value]


def is_cancelled() -> bool:
    """Whether somebody has cancelled the task that is running; if not, CancelledError comes from what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
