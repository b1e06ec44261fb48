"""Credential provider plugins that are real programs: asked only when needed, with cached answers."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from agent.common.model.pods import Pod
from agent.images.edge.credential_plugins import CredentialPlugins
from agent.images.edge.docker_config import NodeLogins
from agent.images.model.pulls import PullCredential
from agent.images.plan.credential_providers import Provider
from agent.images.work.pull_credentials import PullCredentials
from tests.builders.metrics import metrics, series
from tests.builders.pods import pod
from tests.fakes.clock import FakeClock
from tests.waiting import until

V1 = "credentialprovider.kubelet.k8s.io/v1"
SECRET = PullCredential({"username": "secret"})
_PLUGIN = """#!/bin/sh
read request
echo "$REGION $1 $request" >> "{log}"
{script}
"""


class Secrets:
    async def pull_auth(self, pod: Pod, image: str) -> list[PullCredential]:
        return [SECRET]


class Node:
    """A folder with one plugin that tells a log what it was asked."""

    def __init__(self, folder: Path, script: str, **fields: float) -> None:
        self.log = folder / "log"
        program = folder / "plugin"
        program.write_text(_PLUGIN.format(log=self.log, script=script))
        program.chmod(0o755)
        provider = Provider("plugin", V1, ("*.reg.io",), fields.get("cache", 60.0), ("get",), {"REGION": "eu"})
        self.clock = FakeClock()
        self.metrics = metrics()
        plugins = CredentialPlugins(str(folder), self.metrics.credential_plugin_ran)
        self.credentials = PullCredentials(Secrets(), (provider,), plugins, self.clock)

    async def users(self, image: str) -> list[str]:
        return [one.auth["username"] for one in await self.credentials.pull_auth(pod(), image)]

    @property
    def asked(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


def says(kind: str = "Registry", **fields: object) -> str:
    auth = {"*.reg.io": {"username": "plugin", "password": "p"}}
    body = {"kind": "CredentialProviderResponse", "apiVersion": V1, "cacheKeyType": kind, "auth": auth, **fields}
    return f"echo '{json.dumps(body)}'"


async def test_secrets_come_first_and_the_plugin_is_asked_as_upstream_asks(tmp_path: Path) -> None:
    node = Node(tmp_path, says())
    assert await node.users("eu.reg.io/team/app:1") == ["secret", "plugin"]
    (line,) = node.asked
    assert line.startswith("eu get ")
    asked = json.loads(line.removeprefix("eu get "))
    assert asked == {"apiVersion": V1, "kind": "CredentialProviderRequest", "image": "eu.reg.io/team/app"}


@pytest.mark.parametrize(("script", "errors"), [(says(), {}), ("exit 1", {("plugin",): 1})], ids=["well", "failed"])
async def test_runs_of_plugins_are_counted(tmp_path: Path, script: str, errors: dict[tuple[str, ...], float]) -> None:
    node = Node(tmp_path, script)
    await node.users("eu.reg.io/team/app:1")
    name = "kubelet_credential_provider_plugin"
    assert series(node.metrics, f"{name}_duration_count") == {("plugin",): 1}
    assert series(node.metrics, f"{name}_errors_total") == errors


async def test_a_plugin_is_not_asked_about_other_registries(tmp_path: Path) -> None:
    node = Node(tmp_path, says())
    assert await node.users("busybox") == ["secret"]
    assert node.asked == []


@pytest.mark.parametrize(("kind", "expect"), [("Registry", 1), ("Global", 1), ("Image", 2)])
async def test_an_answer_is_cached_under_the_key_it_names(tmp_path: Path, kind: str, expect: int) -> None:
    node = Node(tmp_path, says(kind))
    await node.users("eu.reg.io/a")
    await node.users("eu.reg.io/b")
    assert len(node.asked) == expect


async def test_an_answer_is_cached_for_as_long_as_it_says(tmp_path: Path) -> None:
    node = Node(tmp_path, says(cacheDuration="30s"))
    await node.users("eu.reg.io/a")
    await node.clock.advance(29)
    await node.users("eu.reg.io/a")
    assert len(node.asked) == 1
    await node.clock.advance(2)
    await node.users("eu.reg.io/a")
    assert len(node.asked) == 2


async def test_many_at_once_ask_once(tmp_path: Path) -> None:
    node = Node(tmp_path, says("Image"))
    await asyncio.gather(*(node.users("eu.reg.io/a") for _ in range(5)))
    assert len(node.asked) == 1


class Slow:
    """A plugin that answers when it is told to, and counts how many of its programs run."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.asked: list[str] = []
        self.go = asyncio.Event()

    async def ask(self, name: str, args: Sequence[str], env: Mapping[str, str], text: str) -> str:
        self.asked.append(json.loads(text)["image"])
        self.running += 1
        self.most = max(self.most, self.running)
        await self.go.wait()
        self.running -= 1
        return json.dumps({"kind": "CredentialProviderResponse", "apiVersion": V1, "cacheKeyType": "Image", "auth": {}})


async def test_hundreds_of_images_do_not_start_hundreds_of_plugins() -> None:
    """A pod names as many as it likes. Those of another namespace are asked about when the next place is free."""
    slow = Slow()
    provider = Provider("plugin", V1, ("*.reg.io",), 60.0)
    credentials = PullCredentials(Secrets(), (provider,), slow, FakeClock())
    hostile, other = pod(meta={"namespace": "hostile"}), pod(meta={"namespace": "other"})
    work = [asyncio.create_task(credentials.pull_auth(hostile, f"eu.reg.io/{number}")) for number in range(300)]
    await until(lambda: slow.running > 0)
    await asyncio.sleep(0.1)
    work.append(asyncio.create_task(credentials.pull_auth(other, "eu.reg.io/other")))
    await asyncio.sleep(0.1)
    slow.go.set()
    await asyncio.gather(*work)
    assert slow.most <= 16 and len(slow.asked) == 301
    assert slow.asked.index("eu.reg.io/other") <= 17


async def test_a_plugin_that_fails_is_left_out_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(tmp_path, "echo no role for this node >&2; exit 3")
    assert await node.users("eu.reg.io/a") == ["secret"]
    assert "exit status 3: no role for this node" in caplog.text


def _login(user: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:p".encode()).decode()}


async def test_the_nodes_own_logins_are_for_every_pod(tmp_path: Path) -> None:
    root, home = tmp_path / "kubelet", tmp_path / "home"
    (home / ".docker").mkdir(parents=True)
    root.mkdir()
    credentials = PullCredentials(Secrets(), (), None, FakeClock(), NodeLogins(str(root), str(home)))

    async def users(image: str) -> list[str]:
        found = await credentials.pull_auth(pod(), image)
        assert all(one.source is None for one in found), "no secret's: whoever runs here may use it"
        return [one.auth["username"] for one in found]

    assert await users("reg.io/app:1") == ["secret"]
    (home / ".dockercfg").write_text(json.dumps({"reg.io": _login("legacy")}))
    assert await users("reg.io/app:1") == ["secret", "legacy"]
    (home / ".docker" / "config.json").write_text(json.dumps({"auths": {"reg.io": _login("home")}}))
    assert await users("reg.io/app:1") == ["secret", "home"]
    # The agent's own folder comes first, and no restart is needed for it.
    (root / "config.json").write_text(json.dumps({"auths": {"reg.io:5000": _login("root")}}))
    assert await users("reg.io:5000/app:1") == ["secret", "root"]
    assert await users("other.io/app:1") == ["secret"]
    (root / "config.json").write_text("{")
    assert await users("reg.io/app:1") == ["secret", "home"]
