"""What the endpoints answer: pods, health, logs, and refusals."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import aiohttp
import pytest

from agent.common.model.errors import CriUnavailable
from agent.common.model.pods import ExecResult, RunState
from tests.unit.agent.server.conftest import Bench
from tests.waiting import until


async def _start(bench: Bench, **change: object) -> None:
    settings = bench.settings(mode="AlwaysAllow", anonymous=True)
    await bench.start(replace(settings, **change))  # type: ignore[arg-type]


async def test_pods_carry_the_newest_status(bench: Bench) -> None:
    await _start(bench)
    status, text = await bench.get("/pods")
    listed = json.loads(text)
    assert (status, listed["kind"], listed["apiVersion"]) == (200, "PodList", "v1")
    assert [(pod["metadata"]["name"], pod["status"]["phase"]) for pod in listed["items"]] == [("web", "Running")]


async def test_allocated_pods_are_those_that_run_without_their_status(bench: Bench) -> None:
    (running,) = bench.view.by_uid.values()
    bench.view.by_uid[running.uid] = replace(running, raw={**running.raw, "status": {"phase": "Running"}})
    await _start(bench, allocated_pods=True)
    listed = json.loads((await bench.get("/allocatedPods"))[1])
    assert [(one["metadata"]["name"], one["status"]) for one in listed["items"]] == [("web", {})]
    for path, status in (("ns/web", 200), ("ns/web/u1", 200), ("ns/web/other", 404), ("ns/no", 404)):
        assert (await bench.get(f"/allocatedPods/{path}"))[0] == status, path


@pytest.mark.parametrize("path", ["/runningpods", "/runningpods/"])
async def test_running_pods_are_the_runtimes(bench: Bench, path: str) -> None:
    bench.view.by_uid.clear()
    await _start(bench)
    _, text = await bench.get(path)
    assert [pod["spec"]["containers"][0]["name"] for pod in json.loads(text)["items"]] == ["main"]


async def test_the_folder_of_logs_has_a_slash(bench: Bench) -> None:
    """As upstream's: the links of the page are relative."""
    await _start(bench)
    async with (
        aiohttp.ClientSession() as session,
        session.get(bench.url("/logs?a=b"), ssl=bench.tls(), allow_redirects=False) as answer,
    ):
        assert (answer.status, answer.headers["Location"]) == (301, "/logs/?a=b")


async def test_configz(bench: Bench) -> None:
    await _start(bench)
    assert json.loads((await bench.get("/configz"))[1]) == {"kubeletconfig": {"a": 1}}


async def test_health_is_honest(bench: Bench) -> None:
    await _start(bench)
    assert await bench.get("/healthz") == (200, "ok")
    assert await bench.get("/healthz/lease") == (200, "ok")
    assert (await bench.get("/healthz?verbose"))[1].splitlines()[-1] == "healthz check passed"
    bench.health = "pods were last relisted 4m0s ago"
    status, text = await bench.get("/healthz")
    assert status == 500
    assert "[-]syncloop failed: pods were last relisted 4m0s ago" in text
    assert (await bench.get("/healthz/syncloop"))[0] == 500
    assert (await bench.get("/healthz?exclude=syncloop"))[0] == 200
    async with aiohttp.ClientSession() as session, session.get(bench.url("/healthz", "healthz")) as answer:
        assert answer.status == 500
    async with aiohttp.ClientSession() as session, session.get(bench.url("/pods", "healthz")) as answer:
        assert answer.status == 404


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("POST", "/pods", 405, "Method Not Allowed"),
        ("GET", "/nothing", 404, "404: Page Not Found"),
        ("GET", "/debug/pprof/heap", 404, "no pprof profiles"),
        ("POST", "/checkpoint/ns/web/main", 500, "CRIU is not here"),
        ("POST", "/checkpoint/ns/web/main?timeout=x", 404, "cannot parse value of timeout"),
        ("POST", "/checkpoint/ns/web/main?timeout=²", 404, "cannot parse value of timeout"),
        ("POST", f"/checkpoint/ns/web/main?timeout={'9' * 5000}", 404, "cannot parse value of timeout"),
        ("GET", "/containerLogs/ns/web/main?tailLines=²", 400, "Unable to decode query."),
        ("GET", "/containerLogs/ns/web/main?tailLines=1_0", 400, "Unable to decode query."),
        ("GET", f"/containerLogs/ns/web/main?tailLines={2**63}", 400, "Unable to decode query."),
        ("GET", f"/containerLogs/ns/web/main?limitBytes={'9' * 5000}", 400, "Unable to decode query."),
        ("GET", f"/containerLogs/ns/web/main?sinceSeconds={2**63 - 1}", 400, "failed to open log file"),
        ("GET", "/containerLogs/ns/web/main?sinceTime=9999999999999-01-01T00:00:00Z", 400, "Unable to decode query."),
        ("GET", "/containerLogs/ns/web/main?sinceTime=²²²²-01-01T00:00:00Z", 400, "Unable to decode query."),
        ("GET", "/statusz", 200, "kubelet statusz"),
        ("GET", "/flagz", 200, "kubelet flagz"),
        ("POST", "/checkpoint/ns/web/none", 404, "container none does not exist"),
        ("GET", "/containerLogs/ns/none/main", 404, 'pod "none" does not exist'),
        ("GET", "/containerLogs/ns/web/none", 404, 'container "none" not found in pod "web"'),
        ("GET", "/containerLogs/ns/web/main?tailLines=x", 400, "Unable to decode query."),
        ("GET", "/containerLogs/ns/web/main?tailLines=-1", 422, "Invalid request."),
        ("GET", "/containerLogs/ns/web/main", 400, "failed to open log file"),
        ("GET", "/containerLogs/ns/web/main?previous=true", 400, "previous terminated container"),
        ("POST", "/exec/ns/none/main?output=1", 404, "pod does not exist"),
        ("POST", "/exec/ns/web/main", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("POST", "/exec/ns/web/gone?output=1", 500, 'container not found ("gone")'),
        ("POST", "/attach/ns/web/gone?output=1", 500, "container gone not found in pod web_ns"),
        ("POST", "/exec/ns/web/main?output=1&command=ls", 500, "Upgrade request required"),
        ("POST", "/portForward/ns/web/other-uid", 404, "pod not found"),
        ("GET", "/stats/summary", 503, "stats provider"),
        ("GET", "/metrics/probes", 404, "no probe metrics"),
        ("GET", "/logs/none", 404, "404 page not found"),
        ("GET", "/logs/?query=kubelet", 400, "not enabled"),
    ],
)
async def test_refusals(bench: Bench, method: str, path: str, status: int, said: str) -> None:
    await _start(bench)
    bench.runtime.url = "http://127.0.0.1:1/exec/x"
    got, text = await bench.get(path, method=method)
    assert got == status, text
    assert said in text


async def test_metrics_count_requests_under_known_paths_only(bench: Bench) -> None:
    await _start(bench)
    await bench.get("/etc/passwd")
    _, text = await bench.get("/metrics")
    assert 'kubelet_http_requests_total{long_running="false",method="GET",path="other"' in text
    assert "passwd" not in text


async def test_debugging_handlers_off(bench: Bench) -> None:
    await _start(bench, debugging_handlers=False)
    for path in ("/exec/ns/web/main?output=1", "/containerLogs/ns/web/main", "/logs/", "/runningpods/"):
        assert await bench.get(path) == (405, "Debug endpoints are disabled.\n")
    assert (await bench.get("/pods"))[0] == 200


async def test_read_only_port_shows_pods_and_nothing_to_do(bench: Bench) -> None:
    await _start(bench, read_only_port=-1)
    async with aiohttp.ClientSession() as session:
        async with session.get(bench.url("/pods", "read-only")) as answer:
            assert answer.status == 200
        async with session.post(bench.url("/exec/ns/web/main?output=1", "read-only")) as answer:
            assert answer.status == 405


async def test_run(bench: Bench) -> None:
    await _start(bench)
    assert await bench.get("/run/ns/web/main?cmd=ls+-l", method="POST") == (200, "out")
    assert await bench.get("/run/ns/web/u1/main?cmd=ls", method="POST") == (200, "out")
    assert bench.runtime.asked == [("u1-main", ["ls", "-l"]), ("u1-main", ["ls"])]


async def test_run_answers_with_megabytes(bench: Bench) -> None:
    """Whoever runs a command is no probe: all that the runtime sends is handed on, as upstream does."""
    await _start(bench)
    bench.runtime.result = ExecResult(0, b"x" * 2_000_000, b"")
    assert await bench.get("/run/ns/web/main?cmd=ls", method="POST") == (200, "x" * 2_000_000)


_T = "2026-01-02T03:04:05.5Z"


async def test_container_logs(bench: Bench) -> None:
    (bench.folder / "0.log").write_bytes(
        b"".join(b"%s stdout F line %d\n" % (_T.encode(), number) for number in range(5))
    )
    await _start(bench)
    assert (await bench.get("/containerLogs/ns/web/main"))[1].splitlines() == [f"line {n}" for n in range(5)]
    assert (await bench.get("/containerLogs/ns/web/main?tailLines=2"))[1] == "line 3\nline 4\n"
    assert (await bench.get("/containerLogs/ns/web/main?tailLines=0"))[1] == ""
    assert (await bench.get("/containerLogs/ns/web/main?limitBytes=8"))[1] == "line 0\nl"
    stamped = (await bench.get("/containerLogs/ns/web/main?tailLines=1&timestamps=true"))[1]
    assert stamped == "2026-01-02T03:04:05.500000000Z line 4\n"
    assert (await bench.get("/containerLogs/ns/web/main?stream=Stderr"))[1] == ""


async def test_follow_goes_on_until_the_container_ends(bench: Bench) -> None:
    path = bench.folder / "0.log"
    path.write_bytes(b"")
    await _start(bench)
    async with (
        aiohttp.ClientSession() as session,
        session.get(bench.url("/containerLogs/ns/web/main?follow=true"), ssl=bench.tls()) as answer,
    ):
        assert answer.status == 200  # the header comes although the container is silent
        with path.open("ab", buffering=0) as log:
            log.write(f"{_T} stdout F one\n".encode())
            assert await answer.content.readany() == b"one\n"
            log.write(f"{_T} stdout F two\n".encode())
            assert await answer.content.readany() == b"two\n"
            observed = bench.view.observations["u1"]
            ended = replace(observed.containers[0], state=RunState.EXITED)
            bench.view.observations["u1"] = replace(observed, containers=(ended,))
            log.write(f"{_T} stdout F last\n".encode())
        assert await asyncio.wait_for(answer.content.read(), 10) == b"last\n"


async def test_a_follower_that_leaves_is_let_go(bench: Bench) -> None:
    (bench.folder / "0.log").write_bytes(b"")
    await _start(bench)
    async with aiohttp.ClientSession() as session:
        answer = await session.get(bench.url("/containerLogs/ns/web/main?follow=true"), ssl=bench.tls())
        answer.close()

    async def in_flight() -> str:
        _, text = await bench.get("/metrics")
        return next(line for line in text.splitlines() if "inflight" in line and "containerLogs" in line)

    async def ended() -> bool:
        return (await in_flight()).endswith("} 0.0")

    assert await until(ended)


async def test_previous_log_of_a_container_that_only_the_runtime_knows(bench: Bench) -> None:
    await _start(bench)
    bench.view.statuses["u1"]["containerStatuses"][0]["lastState"] = {"terminated": {"containerID": "containerd://old"}}
    assert await bench.get("/containerLogs/ns/web/main?previous=true") == (
        400,
        "unable to retrieve container logs for containerd://old",
    )


async def test_system_logs_stay_below_their_folder(bench: Bench) -> None:
    logs = bench.folder / "log"
    (logs / "a.log").write_text("text")
    (logs / "sub").mkdir()
    (logs / "out").symlink_to(bench.folder / "ca.crt")
    (logs / "in").symlink_to("a.log")
    await _start(bench)
    assert await bench.get("/logs/a.log") == (200, "text")
    assert (await bench.get("/logs/in"))[0] == 200
    assert (await bench.get("/logs/out"))[0] == 404
    assert '<a href="sub/">' in (await bench.get("/logs/"))[1]


async def test_system_logs_off(bench: Bench) -> None:
    await _start(bench, system_log_handler=False)
    assert await bench.get("/logs/a.log") == (405, "logs endpoint is disabled.\n")


@pytest.mark.parametrize("on", [True, False])
async def test_pages_whose_gates_are_off_are_not_there(bench: Bench, on: bool) -> None:
    await _start(bench, flagz=on, statusz=on, checkpoints=on, allocated_pods=on)
    pages = (("/flagz", "GET"), ("/statusz", "GET"), ("/checkpoint/ns/web/main", "POST"), ("/allocatedPods", "GET"))
    for path, method in pages:
        assert ((await bench.get(path, method=method))[0] != 404) is on, path


async def test_a_runtime_that_is_away_is_said(bench: Bench) -> None:
    await _start(bench)
    bench.runtime.fail = CriUnavailable("no runtime at the socket", code="UNAVAILABLE")
    status, text = await bench.get("/run/ns/web/main?cmd=ls", method="POST")
    assert (status, text) == (500, "no runtime at the socket")
