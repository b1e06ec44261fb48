"""Pods from a URL: what it answers is what runs, and when it does not answer, what ran runs on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from agent.static.work.sources import ProblemReports, UrlSource
from nodelib.errors import Temporary
from tests.fakes.pod_world import IMAGE
from tests.fakes.static_world import StaticWorld


class FakeUrl:
    url = "http://config.example/pods"

    def __init__(self) -> None:
        self.answer: bytes | Exception = b""

    async def read(self) -> bytes:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def pods(self, *names: str) -> None:
        listed = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {"containers": [{"name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent"}]},
            }
            for name in names
        ]
        self.answer = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": listed}).encode()


@pytest.fixture
async def world() -> AsyncIterator[StaticWorld]:
    made = StaticWorld()
    await made.start_agent()
    yield made
    await made.kill_agent()


async def test_what_it_answers_runs_until_it_answers_something_else(world: StaticWorld) -> None:
    url = FakeUrl()
    reported: list[tuple[bool, str]] = []
    problems = ProblemReports(lambda bad, text: reported.append((bad, text)))
    source = UrlSource(url, world.static, problems, world.clock, node_name="n1", period=20)
    url.pods("one", "two")
    await source.refresh()
    await world.until(lambda: sorted(world.cri.running()) == ["one", "two"])

    for answer in (Temporary("it answered 503"), b"", b"{"):
        url.answer = answer
        await source.refresh()
        await world.clock.advance(30)
        assert sorted(world.cri.running()) == ["one", "two"]
    assert len([text for bad, text in reported if bad]) == 3

    url.pods("two")
    await source.refresh()
    await world.until(lambda: world.cri.running() == ["two"])
    assert world.cri.done("start_container").count("two/0") == 1
    assert reported[-1][0] is False


async def test_a_file_and_a_url_that_want_one_name_do_not_run_it_twice(world: StaticWorld) -> None:
    url = FakeUrl()
    problems = ProblemReports(lambda bad, text: None)
    source = UrlSource(url, world.static, problems, world.clock, node_name="n1", period=20)
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one"},
        "spec": {"containers": [{"name": "from-file", "image": IMAGE}]},
    }
    await world.write("one.json", json.dumps(manifest))
    url.pods("one")
    await source.refresh()
    await world.clock.advance(5)
    assert world.cri.running() == ["from-file"]
    await world.remove("one.json")
    await world.until(lambda: world.cri.running() == ["one"])
