"""Probes on a virtual clock: what is sent when, which changes are reported, what is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from agent.common.model.pods import ContainerState, Pod, RunState
from agent.common.work.gate import Gate
from agent.probes import plan
from agent.probes.model import Outcome, ProbeGates, ProbeKind, ProbeRequest, Verdict
from agent.probes.places import Places
from agent.probes.work import ProbeManager
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from tests.builders.metrics import metrics, series
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock, settle
from tests.waiting import until

EXEC = {"exec": {"command": ["true"]}}


class Answers:
    """Answers with the given verdict and records when it was called."""

    def __init__(self, clock: FakeClock) -> None:
        self.verdict = Verdict.SUCCESS
        self.output = "out"
        self.asked: list[float] = []
        self.hang = False
        self.cancelled = 0
        self.containers: list[str] = []
        self.ended = asyncio.Event()
        self._clock = clock

    async def run(self, request: ProbeRequest, container_id: str, timeout: float, *, pod: str = "") -> Outcome:
        self.asked.append(round(self._clock.monotonic(), 2))
        self.containers.append(container_id)
        if self.hang:
            try:
                await self.ended.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return Outcome(self.verdict, self.output)


class RecordedEvents:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def emit(
        self,
        about: Json,
        kind: str,
        reason: str,
        message: str,
        *,
        container: str = "",
        host: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        self.lines.append(f"{kind} {reason} {container}: {message}")


class Bench:
    def __init__(self, commands: int = 3) -> None:
        self.clock = FakeClock()
        self.io = Answers(self.clock)
        self.events = RecordedEvents()
        self.changes: list[str] = []
        self.metrics = metrics()
        self.commands = Gate(commands, longest=None)
        self.keeper = ProbeManager(
            self.io,
            self.events,
            self.changes.append,
            self.clock,
            self.metrics,
            Places(self.commands, decoded=Gate(16, longest=None), asked=Gate(64, longest=None)),
            ProbeGates(http2=True, grpc_tls=True),
        )

    def running(self, found: Pod, *, age: float = 0.0, container_id: str = "c1") -> None:
        at = int((self.clock.now() - age) * 1e9)
        state = ContainerState(container_id, "s", found.uid, "main", 0, RunState.RUNNING, at, started_at=at)
        self.keeper.ensure(found, {"main": state}, ("10.0.0.1",))

    def state(self, found: Pod, container_id: str = "c1") -> Any:
        return self.keeper.states(found.uid)[container_id]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    found = Bench()
    task = asyncio.create_task(found.keeper.run())
    yield found
    await cancel_and_wait(task)


def probed(**probes: Any) -> Pod:
    return pod(container(**probes))


async def test_readiness_success_is_reported_once(bench: Bench) -> None:
    found = probed(readinessProbe={**EXEC, "periodSeconds": 2})
    bench.running(found)
    assert (bench.state(found).started, bench.state(found).ready) == (True, False)
    await bench.clock.advance(7)
    assert bench.state(found).ready
    assert bench.io.asked == [0.0, 2.0, 4.0, 6.0] and bench.changes == [found.uid]


async def test_a_container_without_probes_is_not_listed(bench: Bench) -> None:
    found = probed()
    bench.running(found)
    assert bench.keeper.states(found.uid) == {}


async def test_liveness_failure_is_reported_after_its_threshold_and_held(bench: Bench) -> None:
    bench.io.verdict = Verdict.FAILURE
    found = probed(livenessProbe={**EXEC, "periodSeconds": 2, "failureThreshold": 2})
    bench.running(found)
    await bench.clock.advance(20)
    assert bench.io.asked == [2.0, 4.0] and not bench.state(found).live
    assert bench.events.lines == ["Warning Unhealthy main: Liveness probe failed: out"] * 2
    bench.keeper.ensure(found, {}, ("10.0.0.1",))
    (fatal,) = bench.keeper.findings(found.uid)
    assert fatal.outcome is not None and (fatal.kind, fatal.outcome.output) == (ProbeKind.LIVENESS, "out")
    bench.running(found, container_id="c2")
    assert bench.state(found, "c2").live and "c1" not in bench.keeper.states(found.uid)
    assert [one.outcome for one in bench.keeper.findings(found.uid)] == [None], "a new attempt, no answer yet"


async def test_a_startup_probe_holds_back_the_others_until_it_succeeds(bench: Bench) -> None:
    bench.io.verdict = Verdict.FAILURE
    found = probed(startupProbe={**EXEC, "periodSeconds": 10}, readinessProbe={**EXEC, "periodSeconds": 10})
    bench.running(found)
    await bench.clock.advance(1)
    assert not bench.state(found).started and bench.events.lines == []
    bench.io.verdict = Verdict.SUCCESS
    await bench.clock.advance(1)
    assert bench.state(found).started and bench.state(found).ready
    assert bench.clock.monotonic() < 10


async def test_readiness_lost_and_found(bench: Bench) -> None:
    found = probed(readinessProbe={**EXEC, "periodSeconds": 1, "failureThreshold": 2})
    bench.running(found)
    await bench.clock.advance(1.5)
    bench.io.verdict = Verdict.FAILURE
    await bench.clock.advance(1)
    assert bench.state(found).ready
    await bench.clock.advance(1)
    assert not bench.state(found).ready
    bench.io.verdict = Verdict.SUCCESS
    await bench.clock.advance(1)
    assert bench.state(found).ready and len(bench.changes) == 3


async def test_an_attempt_that_cannot_be_made_says_nothing_of_the_container(bench: Bench) -> None:
    found = probed(readinessProbe={**EXEC, "periodSeconds": 5})
    bench.running(found)
    await bench.clock.advance(1)
    bench.io.verdict, bench.io.output = Verdict.ERROR, "no runtime"
    await bench.clock.advance(20)
    assert bench.state(found).ready
    assert (
        bench.events.lines[0]
        == "Warning Unhealthy main: Readiness probe errored and resulted in unknown state: no runtime"
    )
    assert len(bench.io.asked) == 1 + 4 * 3


async def test_a_warning_counts_as_success(bench: Bench) -> None:
    bench.io.verdict = Verdict.WARNING
    found = probed(readinessProbe=EXEC)
    bench.running(found)
    await settle()
    await bench.clock.advance(0.1)
    assert bench.state(found).ready
    assert bench.events.lines == ["Warning ProbeWarning main: Readiness probe warning: out"]


async def test_a_missing_port_is_reported(bench: Bench) -> None:
    found = probed(readinessProbe={"httpGet": {"port": "nope"}})
    bench.running(found)
    await bench.clock.advance(0.1)
    assert 'port "nope" not found' in bench.events.lines[0] and not bench.state(found).ready


async def test_readiness_holds_over_a_restart_of_the_agent(bench: Bench) -> None:
    known = {"name": "main", "containerID": "containerd://c1", "ready": True, "started": True}
    found = pod(
        container(readinessProbe={**EXEC, "failureThreshold": 2, "periodSeconds": 1}),
        status={"containerStatuses": [known]},
    )
    bench.io.verdict = Verdict.FAILURE
    bench.running(found, age=1000)
    assert bench.state(found).ready and bench.changes == []
    await bench.clock.advance(3.5)
    assert not bench.state(found).ready and bench.changes == [found.uid]


async def test_what_is_not_urgent_waits_for_the_first_round_after_a_restart(bench: Bench) -> None:
    await bench.keeper.first_round()  # nothing was there before the agent
    found = probed(livenessProbe={**EXEC, "periodSeconds": 1})
    bench.running(found, age=1000)
    waiting = asyncio.ensure_future(bench.keeper.first_round())
    await settle()
    assert not waiting.done()
    await bench.clock.advance(0.3)
    assert len(bench.io.asked) == 1 and waiting.done()


async def test_the_first_round_is_not_waited_for_longer_than_a_second(bench: Bench) -> None:
    bench.io.hang = True
    bench.running(probed(livenessProbe=EXEC), age=1000)
    waiting = asyncio.ensure_future(bench.keeper.first_round())
    await bench.clock.advance(0.9)
    assert not waiting.done()
    await bench.clock.advance(0.2)
    assert waiting.done()


async def test_readiness_is_recalled_where_no_probe_has_answered(bench: Bench) -> None:
    """A static pod: its probes begin before the API has shown its mirror pod."""
    known = {"name": "main", "containerID": "containerd://c1", "ready": True, "started": True}
    mirror = pod(container(), status={"containerStatuses": [known]})
    found = probed(readinessProbe={**EXEC, "failureThreshold": 2, "periodSeconds": 1})
    bench.io.verdict = Verdict.FAILURE
    bench.running(found, age=1000)
    bench.keeper.restore(found.uid, mirror)
    assert bench.state(found).ready and bench.changes == []
    await bench.clock.advance(3.5)
    assert not bench.state(found).ready
    bench.keeper.restore(found.uid, mirror)
    assert not bench.state(found).ready, "an answer outlives what was shown before it"


async def test_deletion_stops_liveness_and_keeps_readiness(bench: Bench) -> None:
    probes: Json = {
        "livenessProbe": {**EXEC, "periodSeconds": 1},
        "readinessProbe": {**EXEC, "periodSeconds": 1},
    }
    found = probed(**probes)
    bench.running(found)
    await bench.clock.advance(0.5)
    gone = pod(container(**probes), meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    bench.io.verdict = Verdict.FAILURE
    bench.running(gone)
    await bench.clock.advance(5)
    assert bench.state(gone).live and not bench.state(gone).ready
    assert {line.split(": ")[1].split()[0] for line in bench.events.lines} == {"Readiness"}


async def test_removing_a_pod_cancels_running_attempts(bench: Bench) -> None:
    bench.io.hang = True
    found = probed(readinessProbe=EXEC)
    bench.running(found)
    await bench.clock.advance(0.1)
    bench.keeper.remove(found.uid)
    await settle()
    assert bench.io.cancelled == 1 and bench.keeper.states(found.uid) == {}


async def test_an_agent_that_stops_probes_no_more_and_says_nothing_of_it(bench: Bench) -> None:
    """Its tasks may go on for seconds, when what a probe needs is closed already."""
    bench.io.hang = True
    bench.running(probed(readinessProbe={**EXEC, "periodSeconds": 1}))
    await bench.clock.advance(0.1)
    bench.keeper.stop()
    await bench.clock.advance(10)
    assert bench.io.asked == [0.0] and bench.io.cancelled == 1
    bench.running(probed(livenessProbe={**EXEC, "periodSeconds": 1}), container_id="c2")
    await bench.clock.advance(10)
    assert bench.io.asked == [0.0] and bench.events.lines == []


async def test_results_are_counted_for_the_metric(bench: Bench) -> None:
    found = probed(readinessProbe={**EXEC, "periodSeconds": 1})
    bench.running(found)
    await bench.clock.advance(2.5)
    who = ("main", "web", "shop")
    assert series(bench.metrics, "prober_probe_total") == {("Readiness", "successful", *who, found.uid): 3}
    bench.io.verdict = Verdict.FAILURE
    await bench.clock.advance(1)
    assert series(bench.metrics, "prober_probe_total")["Readiness", "failed", *who, found.uid] == 1
    assert series(bench.metrics, "prober_probe_duration_seconds_count") == {("Readiness", *who): 3}
    bench.keeper.remove(found.uid)
    assert series(bench.metrics, "prober_probe_total") == {}
    assert series(bench.metrics, "prober_probe_duration_seconds_count") == {}


async def test_the_series_of_other_pods_stay(bench: Bench) -> None:
    every_second = {**EXEC, "periodSeconds": 1}
    for name in ("web", "db"):
        found = pod(container(livenessProbe=every_second), meta={"name": name, "uid": name})
        bench.running(found, container_id=name)
    await bench.clock.advance(2)
    assert {labels[3] for labels in series(bench.metrics, "prober_probe_total")} == {"web", "db"}
    bench.keeper.remove("web")
    assert [labels[3] for labels in series(bench.metrics, "prober_probe_total")] == ["db"]
    assert [labels[2] for labels in series(bench.metrics, "prober_probe_duration_seconds_count")] == ["db"]


async def test_a_few_answers_over_http_2_are_decoded_at_once_and_the_namespaces_take_turns(bench: Bench) -> None:
    bench.io.hang = True
    probes: list[Json] = [{"httpGet": {"port": 80, "protocol": "HTTP2"}}, {"grpc": {"port": 80, "mode": "TLS"}}]
    for number in range(60):
        many = pod(container(livenessProbe=probes[number % 2]), meta={"uid": f"m{number}", "namespace": "many"})
        bench.running(many, age=100, container_id=f"many {number}")
    bench.running(pod(container(livenessProbe=probes[0]), meta={"uid": "one", "namespace": "one"}), age=100)
    plain: Json = {"httpGet": {"port": 80}}
    bench.running(pod(container(livenessProbe=plain), meta={"uid": "h", "namespace": "many"}), container_id="http")
    await bench.clock.advance(20)
    assert len(bench.io.containers) == 17, bench.io.containers
    assert "http" in bench.io.containers
    bench.io.ended.set()
    await until(lambda: len(bench.io.containers) >= 62)
    assert "c1" in bench.io.containers[:19]


async def test_a_few_commands_begin_at_once_and_the_namespaces_take_turns(bench: Bench) -> None:
    bench.io.hang = True
    for number in range(20):
        many = pod(container(livenessProbe=EXEC), meta={"uid": f"m{number}", "namespace": "many"})
        bench.running(many, age=100, container_id=f"many {number}")
    bench.running(pod(container(livenessProbe=EXEC), meta={"uid": "one", "namespace": "one"}), age=100)
    http = {"httpGet": {"port": 80}}
    bench.running(pod(container(livenessProbe=http), meta={"uid": "h", "namespace": "many"}), container_id="http")
    await bench.clock.advance(20)
    assert len(bench.io.containers) == 4 and "http" in bench.io.containers
    bench.io.ended.set()
    await until(lambda: len(bench.io.containers) >= 22)
    assert "c1" in bench.io.containers[:5]


async def test_of_all_other_probes_so_many_are_asked_at_once_that_others_have_their_turn(bench: Bench) -> None:
    """Each is a millisecond of the event loop, ten with redirects, and a namespace may have thousands a second."""
    bench.io.hang = True
    probes: list[Json] = [{"httpGet": {"port": 80}}, {"tcpSocket": {"port": 80}}, {"grpc": {"port": 80}}]
    for number in range(150):
        many = pod(container(livenessProbe=probes[number % 3]), meta={"uid": f"m{number}", "namespace": "many"})
        bench.running(many, age=100, container_id=f"many {number}")
    bench.running(pod(container(livenessProbe=probes[0]), meta={"uid": "one", "namespace": "one"}), age=100)
    bench.running(pod(container(livenessProbe=EXEC), meta={"uid": "x", "namespace": "many"}), container_id="exec")
    await bench.clock.advance(20)
    assert len(bench.io.containers) == 65 and "exec" in bench.io.containers
    bench.io.ended.set()
    await until(lambda: len(bench.io.containers) >= 152)
    assert "c1" in bench.io.containers[:67]


@pytest.mark.parametrize(
    ("command", "env", "times"),
    [
        pytest.param("$$" * 10_000, "", 1, id="long"),
        pytest.param("$$" * 10_000 + "$(A)", "x" * 200_000, 1, id="long, and refused"),
        pytest.param("$(A)", "x" * 200_000, 1, id="refused"),
        pytest.param("$(A)", "x" * 100_000, 5, id="short, and long with its values"),
    ],
)
async def test_a_long_command_is_put_together_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, command: str, env: str, times: int
) -> None:
    """A megabyte of escaped dollars took 0.2 s of the event loop at each attempt, one a second; where it ended with
    too many references, it still did. What is quickly made is not kept: 128 KiB for each of 1,500 probes of a pod."""
    made: list[str] = []
    request_of = plan.request_of

    def counted(spec: plan.Spec, *given: Any) -> ProbeRequest:
        made.append(spec.kind.value)
        return request_of(spec, *given)

    monkeypatch.setattr(plan, "request_of", counted)
    probe = {"exec": {"command": ["sh", command]}, "periodSeconds": 1}
    found = probed(readinessProbe=probe, env=[{"name": "A", "value": env}])
    bench.running(found)
    for _ in range(5):
        await bench.clock.advance(1)
    assert len(made) == times if times == 1 else len(made) >= times
    (answer,) = bench.keeper.findings(found.uid)
    assert answer.times >= 5 and answer.fails is not bool(bench.io.asked)


async def test_a_namespace_has_so_many_commands_under_way() -> None:
    """The runtime keeps what each writes until it ends, 36 MiB: forty commands took it 1.4 GiB, and the agent 0.9."""
    bench = Bench(commands=100)
    task = asyncio.create_task(bench.keeper.run())
    bench.io.hang = True
    for number in range(40):
        many = pod(container(livenessProbe=EXEC), meta={"uid": f"m{number}", "namespace": "many"})
        bench.running(many, age=100, container_id=f"many {number}")
    bench.running(pod(container(livenessProbe=EXEC), meta={"uid": "one", "namespace": "one"}), age=100)
    await bench.clock.advance(20)
    assert len(bench.io.containers) == 33 and "c1" in bench.io.containers
    bench.io.ended.set()
    await until(lambda: len(bench.io.containers) >= 41)
    await cancel_and_wait(task)


async def test_the_pods_of_a_namespace_take_turns_for_its_commands() -> None:
    """One whose hundreds of commands hang would have all others of its namespace wait for each of them."""
    bench = Bench(commands=100)
    task = asyncio.create_task(bench.keeper.run())
    bench.io.hang = True
    names = [f"c{number}" for number in range(80)]
    greedy = pod(*(container(name, livenessProbe=EXEC) for name in names), meta={"uid": "greedy"})
    at = int((bench.clock.now() - 100) * 1e9)
    states = {name: ContainerState(name, "s", "greedy", name, 0, RunState.RUNNING, at, started_at=at) for name in names}
    bench.keeper.ensure(greedy, states, ("10.0.0.1",))
    await bench.clock.advance(20)
    bench.running(pod(container(livenessProbe=EXEC), meta={"uid": "late"}), age=100, container_id="late")
    await bench.clock.advance(20)
    assert len(bench.io.containers) == 32
    bench.io.ended.set()
    await until(lambda: len(bench.io.containers) >= 81)
    assert "late" in bench.io.containers[:34]
    await cancel_and_wait(task)
