"""What plugins answered, which users choose the number of, and what one answer with thousands of registries costs."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence

import pytest

from agent.common.model.pods import Pod
from agent.images.model.pulls import PullCredential
from agent.images.plan import keyring
from agent.images.plan.credential_providers import Answer, Provider
from agent.images.work.answer_cache import AnswerCache
from agent.images.work.pull_credentials import PullCredentials
from tests.builders.pods import pod
from tests.fakes.clock import FakeClock
from tests.unit.agent.images.test_pull_credentials import V1


def answer(password: str = "p", seconds: float = 60.0) -> Answer:
    return Answer({"reg.io": PullCredential({"username": "u", "password": password})}, "Image/a", seconds)


def test_the_oldest_give_way() -> None:
    clock = FakeClock()
    cache = AnswerCache(clock.monotonic)
    for number in range(3000):
        cache.put(("plugin", "", f"Image/{number}"), answer(str(number)))
    kept = [number for number in range(3000) if cache.get(("plugin", "", f"Image/{number}"))]
    assert kept == list(range(2000, 3000))


def test_all_together_have_a_bound() -> None:
    cache = AnswerCache(FakeClock().monotonic)
    for number in range(100):
        cache.put(("plugin", str(number), "Global/global"), answer("x" * (1 << 20)))
    kept = [number for number in range(100) if cache.get(("plugin", str(number), "Global/global"))]
    assert kept == list(range(85, 100))
    cache.put(("plugin", "0", "Global/global"), answer("x" * (17 << 20)))
    assert cache.get(("plugin", "0", "Global/global")) is None
    assert cache.get(("plugin", "99", "Global/global")) is not None


async def test_for_as_long_as_they_say() -> None:
    clock = FakeClock()
    cache = AnswerCache(clock.monotonic)
    key = ("plugin", "", "Image/a")
    cache.put(key, answer("1", 10))
    assert cache.get(key) is not None
    await clock.advance(10)
    assert cache.get(key) is None
    cache.put(key, answer("2", 10))
    cache.put(key, answer("3", 0))
    assert cache.get(key) is None, "the newer one is not to be kept"


def test_annotations_are_not_kept() -> None:
    """They are a part of whose an answer is, and may have 256 KiB, each time others."""
    cache = AnswerCache(FakeClock().monotonic)
    for number in range(10):
        cache.put(("plugin", f"{number}{'x' * 100_000}", "Image/a"), answer(str(number)))
    assert sum(len(part) for key in cache._known for part in key) < 2000
    assert cache.get(("plugin", f"7{'x' * 100_000}", "Image/a")) == answer("7")


class _Nobody:
    async def pull_auth(self, pod: Pod, image: str) -> list[PullCredential]:
        return []


class _Plugins:
    """A plugin that knows ten thousand registries."""

    async def ask(self, name: str, args: Sequence[str], env: Mapping[str, str], text: str) -> str:
        auth = {f"r{number}.reg.io": {"username": "u", "password": "p"} for number in range(10_000)}
        body = {"kind": "CredentialProviderResponse", "apiVersion": V1, "cacheKeyType": "Image", "auth": auth}
        return json.dumps(body)


async def test_thousands_of_registries_are_compared_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pull of an image of theirs held the event loop for 0.4 s."""
    beside: list[bool] = []
    before = keyring.match

    def watched(*args: object) -> object:
        beside.append(threading.current_thread() is not threading.main_thread())
        return before(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(keyring, "match", watched)
    provider = Provider("plugin", V1, ("*.reg.io",), 60.0)
    credentials = PullCredentials(_Nobody(), (provider,), _Plugins(), FakeClock())
    assert len(await credentials.pull_auth(pod(), "r7.reg.io/app")) == 1
    await credentials.pull_auth(pod(), "other.io/app")
    assert beside == [True, False]


async def test_locks_of_images_go_with_those_who_hold_them() -> None:
    provider = Provider("plugin", V1, ("*.reg.io",), 60.0)
    credentials = PullCredentials(_Nobody(), (provider,), _Plugins(), FakeClock())
    await credentials.pull_auth(pod(), "r7.reg.io/app")
    assert not credentials._locks._locks
