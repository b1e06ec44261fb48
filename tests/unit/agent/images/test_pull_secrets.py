"""Image pull secrets: credentials from Secrets that exist, one warning for those that do not."""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

import pytest

from agent.common.work.pod_warnings import PodWarnings
from agent.images.model.pulls import UnreadSecret
from agent.images.plan import keyring
from agent.images.plan.keyring import read_secret
from agent.images.work.pull_secrets import PullSecrets, UnreadSecrets
from agent.volumes.model.sources import SECRET, ObjectRef
from tests.builders.pods import pod
from tests.fakes.volumes import FakeObjects

AUTHS = base64.b64encode(b'{"auths":{"reg.io":{"username":"me","password":"x"}}}').decode()
GOOD = {
    "metadata": {"name": "good", "namespace": "shop", "uid": "s1"},
    "type": "kubernetes.io/dockerconfigjson",
    "data": {".dockerconfigjson": AUTHS},
}
BAD = {**GOOD, "data": {".dockerconfigjson": base64.b64encode(b"{").decode()}}
SUBJECT = pod(imagePullSecrets=[{"name": "good"}, {}])


@pytest.fixture
def objects() -> FakeObjects:
    made = FakeObjects()
    made.found[ObjectRef(SECRET, "good")] = GOOD
    return made


async def users(objects: FakeObjects, subject: Any, image: str, warned: list[tuple[str, str]], times: int = 1) -> Any:
    secrets = PullSecrets(
        objects, PodWarnings(lambda _, reason, message: warned.append((reason, message))), UnreadSecrets()
    )
    for _ in range(times):
        found = await secrets.pull_auth(subject, image)
    return [one.auth["username"] for one in found]


async def test_only_a_matching_registry_gets_the_credentials(objects: FakeObjects) -> None:
    warned: list[tuple[str, str]] = []
    assert await users(objects, SUBJECT, "reg.io/a:1", warned) == ["me"]
    assert await users(objects, SUBJECT, "other.io/a:1", warned) == []
    assert warned == []


@pytest.mark.parametrize(
    ("secret", "problem"),
    [pytest.param(None, "not found", id="missing"), pytest.param(BAD, ".dockerconfigjson is not JSON", id="malformed")],
)
async def test_a_secret_of_no_use_is_warned_of_once_and_left_out(
    objects: FakeObjects, secret: Any, problem: str
) -> None:
    objects.found[ObjectRef(SECRET, "bad")] = secret
    warned: list[tuple[str, str]] = []
    subject = pod(imagePullSecrets=[{"name": "bad"}, {"name": "good"}])
    assert await users(objects, subject, "reg.io/a:1", warned, times=3) == ["me"]
    ((reason, message),) = warned
    assert reason == "FailedToRetrieveImagePullSecret"
    assert message.startswith(f"Unable to retrieve some image pull secrets (bad: {problem}")
    assert message.endswith("); the pull may not succeed.")


async def test_what_cannot_be_read_is_known_until_it_can(objects: FakeObjects) -> None:
    unread = UnreadSecrets()
    secrets = PullSecrets(objects, PodWarnings(lambda *_: None), unread)
    subject = pod(imagePullSecrets=[{"name": "bad"}, {"name": "good"}])
    await secrets.pull_auth(subject, "reg.io/a:1")
    assert unread.of(subject.uid) == (UnreadSecret("bad"),)
    objects.found[ObjectRef(SECRET, "bad")] = BAD
    await secrets.pull_auth(subject, "reg.io/a:1")
    (found,) = unread.of(subject.uid)
    assert found.name == "bad" and found.problem.startswith(".dockerconfigjson is not JSON")
    objects.found[ObjectRef(SECRET, "bad")] = GOOD
    await secrets.pull_auth(subject, "reg.io/a:1")
    assert unread.of(subject.uid) == ()
    del objects.found[ObjectRef(SECRET, "bad")]
    await secrets.pull_auth(subject, "reg.io/a:1")
    unread.drop_pod(subject.uid)
    assert unread.of(subject.uid) == ()


async def test_a_silent_api_server_is_warned_of(objects: FakeObjects) -> None:
    objects.down = True
    warned: list[tuple[str, str]] = []
    assert await users(objects, SUBJECT, "reg.io/a:1", warned) == []
    assert [message for _, message in warned] == [
        "Unable to retrieve some image pull secrets (good: no answer); the pull may not succeed."
    ]


async def test_thousands_of_pull_secrets_are_neither_all_read_nor_all_warned_of(objects: FakeObjects) -> None:
    warned: list[tuple[str, str]] = []
    names = [{"name": "good"}, *({"name": f"x{number}"} for number in range(5000))]
    assert await users(objects, pod(imagePullSecrets=names), "reg.io/a:1", warned) == ["me"]
    assert len(warned) == 100 and "only the first 100 are used" in warned[0][1]


def of_many(name: str, count: int) -> Any:
    auths = {f"{name}-{number}.io": {"username": "me", "password": "x"} for number in range(count)}
    data = base64.b64encode(json.dumps({"auths": auths}).encode()).decode()
    return {**GOOD, "metadata": {"name": name, "namespace": "shop", "uid": name}, "data": {".dockerconfigjson": data}}


async def test_a_secret_with_very_many_registries_is_not_read_on_the_event_loop(
    objects: FakeObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes the Secret would hold up probes and starts of all pods for minutes."""
    read_in: list[int] = []

    def read(secret: Any, most: int) -> Any:
        read_in.append(threading.get_ident())
        return read_secret(secret, most)

    monkeypatch.setattr(keyring, "read_secret", read)
    warned: list[tuple[str, str]] = []
    assert await users(objects, SUBJECT, "reg.io/a:1", warned) == ["me"]
    assert read_in and threading.get_ident() not in read_in


async def test_so_many_registries_of_a_pod_are_looked_at_and_the_rest_is_warned_of(objects: FakeObjects) -> None:
    objects.found[ObjectRef(SECRET, "first")] = of_many("first", 4999)
    objects.found[ObjectRef(SECRET, "second")] = of_many("second", 3)
    warned: list[tuple[str, str]] = []
    subject = pod(imagePullSecrets=[{"name": "first"}, {"name": "second"}, {"name": "good"}])
    assert await users(objects, subject, "second-0.io/a:1", warned) == ["me"]
    assert [message.partition(": ")[2].partition(",")[0] for _, message in warned] == [
        "2 registries are left out",
        "1 registries are left out",
    ]
    assert await users(objects, subject, "second-1.io/a:1", warned) == []
