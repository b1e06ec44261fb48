"""When to probe and what answers mean: the cases of upstream's worker_test and prober_test."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.common.model.pods import ProbeState
from agent.probes import plan
from agent.probes.model import ExecRequest, GrpcRequest, HttpRequest, ProbeGates, ProbeKind, TcpRequest
from agent.probes.plan import Spec, Track
from nodelib.errors import Invalid
from nodelib.json_values import Json
from tests.builders.pods import container

STARTUP, READINESS, LIVENESS = ProbeKind.STARTUP, ProbeKind.READINESS, ProbeKind.LIVENESS


def spec(kind: ProbeKind = READINESS, **probe: Any) -> Spec:
    fields: Json = {f"{kind.value.lower()}Probe": {"exec": {"command": ["true"]}, **probe}}
    return plan.specs(container(**fields))[0]


def after(one: Spec, answers: str, track: Track | None = None) -> Track:
    """Answers as text: "+" success, "-" failure."""
    track = track or Track()
    for answer in answers:
        track = plan.record(track, one, answer == "+")
    return track


def test_defaults_are_the_apis() -> None:
    found = spec()
    assert (found.initial_delay, found.period, found.timeout, found.successes, found.failures) == (0, 10, 1, 1, 3)


def test_every_field_counts() -> None:
    found = spec(initialDelaySeconds=2, periodSeconds=3, timeoutSeconds=4, successThreshold=5, failureThreshold=6)
    assert (found.initial_delay, found.period, found.timeout, found.successes, found.failures) == (2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("one", "answers", "verdict", "held"),
    [
        pytest.param(spec(), "", None, False, id="no answer yet"),
        pytest.param(spec(), "+", True, False, id="one success"),
        pytest.param(spec(), "--", None, False, id="below the failure threshold"),
        pytest.param(spec(), "---", False, False, id="failure threshold"),
        pytest.param(spec(), "+--", True, False, id="ready holds below the threshold"),
        pytest.param(spec(), "+--+--", True, False, id="a success starts the count again"),
        pytest.param(spec(), "+---", False, False, id="not ready any more"),
        pytest.param(spec(successThreshold=3), "++", None, False, id="below the success threshold"),
        pytest.param(spec(successThreshold=3), "++-+++", True, False, id="success threshold in a row"),
        pytest.param(spec(LIVENESS), "---", False, True, id="liveness failed: hold until a new container"),
        pytest.param(spec(LIVENESS), "+", True, False, id="liveness goes on"),
        pytest.param(spec(STARTUP), "+", True, True, id="started: no more attempts"),
        pytest.param(spec(STARTUP, failureThreshold=2), "--", False, True, id="never started"),
    ],
)
def test_thresholds(one: Spec, answers: str, verdict: bool | None, held: bool) -> None:
    found = after(one, answers)
    assert (found.verdict, found.held) == (verdict, held)


def test_an_uncounted_failure_only_counts_the_try() -> None:
    one = spec(STARTUP, failureThreshold=1)
    found = plan.record(Track(), one, False, counted=False)
    assert (found.verdict, found.run, found.tries) == (None, 0, 1)
    assert plan.record(found, one, True, counted=False).verdict is True


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 5), st.integers(1, 5))
def test_the_verdict_is_the_last_run_that_reached_its_threshold(answers: list[bool], ups: int, downs: int) -> None:
    one = spec(successThreshold=ups, failureThreshold=downs)
    track, expect = Track(), None
    for index, answer in enumerate(answers):
        track = plan.record(track, one, answer)
        need = ups if answer else downs
        last = answers[max(0, index + 1 - need) : index + 1]
        if len(last) == need and set(last) == {answer}:
            expect = answer
    assert track.verdict is expect


@pytest.mark.parametrize(
    ("tracks", "expect"),
    [
        pytest.param({}, ProbeState(True, True), id="no probes"),
        pytest.param({READINESS: Track()}, ProbeState(True, False), id="readiness unknown"),
        pytest.param({READINESS: Track(verdict=True)}, ProbeState(True, True), id="ready"),
        pytest.param({LIVENESS: Track()}, ProbeState(True, True), id="liveness unknown is alive"),
        pytest.param({STARTUP: Track()}, ProbeState(False, False), id="not started"),
        pytest.param({STARTUP: Track(), READINESS: Track(verdict=True)}, ProbeState(False, False), id="startup gates"),
        pytest.param(
            {STARTUP: Track(verdict=True), READINESS: Track()}, ProbeState(True, False), id="started, not ready"
        ),
        pytest.param(
            {LIVENESS: Track(verdict=False)},
            ProbeState(True, True, False, "Liveness probe failed"),
            id="liveness failed",
        ),
        pytest.param(
            {STARTUP: Track(verdict=False)},
            ProbeState(False, False, False, "Startup probe failed"),
            id="startup failed",
        ),
    ],
)
def test_state(tracks: dict[ProbeKind, Track], expect: ProbeState) -> None:
    assert plan.state(tracks) == expect


@pytest.mark.parametrize(
    ("kind", "started", "held", "expect"),
    [
        (STARTUP, False, False, True),
        (STARTUP, True, False, False),
        (READINESS, False, False, False),
        (READINESS, True, False, True),
        (LIVENESS, False, False, False),
        (LIVENESS, True, False, True),
        (LIVENESS, True, True, False),
    ],
)
def test_startup_gates_the_others(kind: ProbeKind, started: bool, held: bool, expect: bool) -> None:
    assert plan.wanted(spec(kind), Track(held=held), started) is expect


@pytest.mark.parametrize(
    ("one", "expect"),
    [
        pytest.param(spec(READINESS), 100.0, id="readiness at once"),
        pytest.param(spec(READINESS, initialDelaySeconds=5), 105.0, id="readiness after its delay"),
        pytest.param(spec(LIVENESS), 110.0, id="liveness after a period"),
        pytest.param(spec(LIVENESS, initialDelaySeconds=15), 115.0, id="liveness after its delay"),
        pytest.param(spec(STARTUP), 100.0, id="startup tried at once"),
        pytest.param(spec(STARTUP, initialDelaySeconds=3), 103.0, id="startup never before its delay"),
    ],
)
def test_first_due(one: Spec, expect: float) -> None:
    assert plan.first_due(one, 100.0, 100.0, restarted=False, jitter=0.5) == expect


def test_after_a_restart_of_the_agent_probes_are_spread() -> None:
    assert plan.first_due(spec(periodSeconds=4), 0.0, 100.0, restarted=True, jitter=0.5) == 100.5
    assert plan.first_due(spec(periodSeconds=600), 0.0, 100.0, restarted=True, jitter=1.0) == 102.5


def test_from_the_second_attempt_on_they_are_spread_over_a_period() -> None:
    one = spec(LIVENESS, periodSeconds=4)
    latest = plan.first_due(one, 0.0, 100.0, restarted=True, jitter=1.0)
    once, twice = Track(verdict=True, tries=1), Track(verdict=True, tries=2)
    second = plan.next_due(one, once, 0.0, latest, latest)
    assert second + plan.lag(one, once, restarted=True, jitter=1.0) == 100.0 + 2 * one.period
    assert plan.lag(one, twice, restarted=True, jitter=1.0) == 0.0
    assert plan.lag(one, once, restarted=False, jitter=1.0) == 0.0
    assert plan.lag(one, Track(tries=1), restarted=True, jitter=1.0) == 0.0, "what is not decided is asked again soon"


def test_startup_is_tried_in_between_without_counting() -> None:
    one, began, tries = spec(STARTUP, periodSeconds=2), 0.0, []
    track = Track()
    while began <= 6.0:
        counted = plan.is_counted(one, 0.0, began)
        tries.append((round(began, 1), counted))
        track = plan.record(track, one, False, counted=counted)
        began = plan.next_due(one, track, 0.0, began, began)
    assert tries == [(0.0, False), (0.2, False), (0.6, False), (1.4, False), (2.0, True), (4.0, True), (6.0, True)]


def test_a_startup_probe_has_as_long_as_upstream_gives_it() -> None:
    one, began, track = spec(STARTUP, periodSeconds=2, failureThreshold=3), 0.0, Track()
    while not track.held:
        last = began
        track = plan.record(track, one, False, counted=plan.is_counted(one, 0.0, began))
        began = plan.next_due(one, track, 0.0, began, began)
    assert last == 6.0 and track.verdict is False


def test_readiness_is_tried_again_soon_until_it_has_succeeded() -> None:
    one = spec(READINESS, periodSeconds=10, failureThreshold=100)
    began, track, times = 0.0, Track(), []
    for _ in range(7):
        times.append(round(began, 1))
        track = plan.record(track, one, False)
        began = plan.next_due(one, track, 0.0, began, began)
    assert times == [0.0, 0.2, 0.6, 1.4, 3.0, 6.2, 12.6]
    track = plan.record(track, one, True)
    assert plan.next_due(one, track, 0.0, began, began) == began + 10


def test_a_slow_attempt_is_followed_at_once() -> None:
    assert plan.next_due(spec(LIVENESS, periodSeconds=1), Track(tries=1), 0.0, 100.0, 105.0) == 105.0


@pytest.mark.parametrize(
    ("kind", "known", "verdict"),
    [
        pytest.param(READINESS, {"ready": True, "started": True}, True, id="was ready"),
        pytest.param(READINESS, {"ready": False, "started": True}, None, id="was not"),
        pytest.param(STARTUP, {"ready": False, "started": True}, True, id="was started"),
        pytest.param(LIVENESS, {"ready": True, "started": True}, None, id="liveness asks afresh"),
        pytest.param(READINESS, None, None, id="the API knows nothing"),
    ],
)
def test_readiness_outlives_a_restart_of_the_agent(kind: ProbeKind, known: Json | None, verdict: Any) -> None:
    assert plan.initial(spec(kind), known).verdict is verdict


@pytest.mark.parametrize(("kind", "verdict"), [(STARTUP, True), (LIVENESS, True), (READINESS, None)])
def test_a_pod_that_is_deleted_ends_quietly(kind: ProbeKind, verdict: bool | None) -> None:
    found = plan.stop_liveness_and_startup(Track(), spec(kind))
    assert (found.verdict, found.held) == (verdict, verdict is not None)


PORTS = [{"name": "web", "containerPort": 8080}]


def ask(ip: str = "10.0.0.9", **action: Any) -> Any:
    found = container(
        ports=PORTS, env=[{"name": "A", "value": "b"}, {"name": "S", "valueFrom": {}}], readinessProbe=action
    )
    return plan.request_of(plan.specs(found)[0], found, ip)


DEFAULT_HEADERS = (("User-Agent", "kube-probe/1.37"), ("Accept", "*/*"))


@pytest.mark.parametrize(
    ("action", "expect"),
    [
        pytest.param({"exec": {"command": ["sh", "$(A)", "$(S)"]}}, ExecRequest(("sh", "b", "$(S)")), id="exec"),
        pytest.param({"httpGet": {"port": 80}}, HttpRequest("http", "10.0.0.9", 80, "/", DEFAULT_HEADERS), id="http"),
        pytest.param(
            {"httpGet": {"port": "web", "path": "/a b?c=d#e", "scheme": "HTTPS"}},
            HttpRequest("https", "10.0.0.9", 8080, "/a%20b?c=d", DEFAULT_HEADERS),
            id="https, named port, odd path",
        ),
        pytest.param(
            {
                "httpGet": {
                    "port": 80,
                    "host": "h",
                    "httpHeaders": [{"name": "user-agent", "value": "x"}, {"name": "Accept", "value": ""}],
                }
            },
            HttpRequest("http", "h", 80, "/", (("user-agent", "x"),)),
            id="own headers",
        ),
        pytest.param({"tcpSocket": {"port": "web"}}, TcpRequest("10.0.0.9", 8080), id="tcp"),
        pytest.param({"tcpSocket": {"port": 1, "host": "h"}}, TcpRequest("h", 1), id="tcp to a host"),
        pytest.param({"grpc": {"port": 5, "service": "s"}}, GrpcRequest("10.0.0.9", 5, "s"), id="grpc"),
        pytest.param({"grpc": {"port": 5}}, GrpcRequest("10.0.0.9", 5, ""), id="grpc without a service"),
    ],
)
def test_ask(action: Json, expect: Any) -> None:
    assert ask(**action) == expect


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        pytest.param({"exec": {"command": ["true", "$(LONG)" * 5]}}, "more than 131072 characters", id="references"),
        pytest.param({"exec": {"command": ["a"] * 5000}}, "5000 words of a command are more than", id="words"),
        pytest.param(
            {"httpGet": {"port": 80, "httpHeaders": [{"name": "a", "value": "b"}] * 2000}},
            "2000 httpHeaders are more than",
            id="headers",
        ),
        pytest.param({"httpGet": {"port": 80, "path": "/" * 20_000}}, "20000 characters of a path", id="path"),
    ],
)
def test_what_a_probe_says_is_put_together_for_each_attempt_and_has_a_limit(action: Json, problem: str) -> None:
    """Thirty containers, in one pod, took ten seconds of the agent's loop each second."""
    found = container(env=[{"name": "LONG", "value": "x" * 30_000}], readinessProbe=action)
    with pytest.raises(Invalid, match=problem):
        plan.request_of(plan.specs(found)[0], found, "10.0.0.9")


@pytest.mark.parametrize("on", [True, False])
def test_http2_and_tls_are_asked_for_behind_their_gates(on: bool) -> None:
    gates = ProbeGates(http2=on, grpc_tls=on)

    def asked(**action: Any) -> Any:
        found = container(readinessProbe=action)
        return plan.request_of(plan.specs(found)[0], found, "10.0.0.9", gates)

    assert asked(httpGet={"port": 80, "protocol": "HTTP2"}).http2 is on
    assert asked(grpc={"port": 80, "mode": "TLS"}).tls is on
    assert not asked(httpGet={"port": 80}).http2 and not asked(grpc={"port": 80}).tls


def test_ipv6_in_a_url() -> None:
    assert ask(ip="fd00::1", httpGet={"port": 80}).url == "http://[fd00::1]:80/"


@pytest.mark.parametrize(
    ("ip", "action", "part"),
    [
        ("10.0.0.1", {"httpGet": {"port": "nope"}}, 'port "nope" not found'),
        ("10.0.0.1", {"tcpSocket": {"port": 70000}}, "invalid port number: 70000"),
        ("10.0.0.1", {}, "missing probe handler"),
        ("", {"httpGet": {"port": 80}}, "no address yet"),
    ],
)
def test_what_cannot_be_asked(ip: str, action: Json, part: str) -> None:
    with pytest.raises(Invalid, match=part):
        ask(ip=ip, **{"periodSeconds": 1, **action})
