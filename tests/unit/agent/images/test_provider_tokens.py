"""Credential provider plugins that get a token of the pod's service account; the plugins are real programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.common.model.pods import Pod
from agent.images.edge.credential_plugins import CredentialPlugins
from agent.images.model.pulls import Account, AccountSource, AccountToken, PullCredential
from agent.images.plan import pull_records
from agent.images.plan.credential_providers import Provider, TokenAttributes
from agent.images.work.pull_credentials import PullCredentials
from tests.builders.pods import pod
from tests.fakes.clock import FakeClock
from tests.unit.agent.images.test_pull_credentials import V1, says

ROLE = "reg.io/role"
TOKENS = TokenAttributes("reg.io", True, False, (ROLE,), ("team",))


class NoSecrets:
    async def pull_auth(self, pod: Pod, image: str) -> list[PullCredential]:
        return []


class Node:
    """A plugin that notes what it was asked, and the service accounts of an API server."""

    def __init__(self, folder: Path, tokens: TokenAttributes = TOKENS, script: str = "") -> None:
        self.log, program = folder / "log", folder / "plugin"
        program.write_text(f'#!/bin/sh\nread request\necho "$request" >> "{self.log}"\n{script or says()}\n')
        program.chmod(0o755)
        provider = Provider("plugin", V1, ("*.reg.io",), 600.0, tokens=tokens)
        self.clock, self.annotations, self.issued = FakeClock(), {ROLE: "r", "other": "x"}, list[str]()
        plugins = CredentialPlugins(str(folder))
        self.credentials = PullCredentials(NoSecrets(), (provider,), plugins, self.clock, None, self)

    async def account(self, namespace: str, name: str) -> Account:
        return Account(AccountSource(namespace, name, f"uid-{name}"), self.annotations)

    async def token(self, pod: Pod, account: Account, audience: str) -> AccountToken:
        self.issued.append(f"{pod.uid}/{account.source.name}/{audience}")
        return AccountToken(f"token-{len(self.issued)}", 60.0)

    async def pull(self, account: str = "builder", uid: str = "u1") -> list[PullCredential]:
        return await self.credentials.pull_auth(pod(meta={"uid": uid}, serviceAccountName=account), "eu.reg.io/app")

    @property
    def asked(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


async def test_the_plugin_gets_a_token_and_annotations_and_its_answer_is_the_accounts(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (found,) = await node.pull()
    assert node.issued == ["u1/builder/reg.io"]
    (asked,) = node.asked
    assert (asked["serviceAccountToken"], asked["serviceAccountAnnotations"]) == ("token-1", {ROLE: "r"})
    assert found.source == AccountSource("shop", "builder", "uid-builder")


async def test_an_answer_is_for_one_account_with_its_annotations(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for account, uid in (("builder", "u1"), ("builder", "u2"), ("other", "u3")):
        await node.pull(account, uid)
    assert len(node.asked) == 2
    node.annotations = {ROLE: "another"}
    await node.pull()
    assert len(node.asked) == 3


async def test_by_token_an_answer_is_for_one_pod_and_as_long_as_the_token(tmp_path: Path) -> None:
    node = Node(tmp_path, replace(TOKENS, by_token=True))
    for uid in ("u1", "u1", "u2"):
        await node.pull(uid=uid)
    assert len(node.asked) == 2
    await node.clock.advance(61)
    await node.pull(uid="u1")
    assert len(node.asked) == 3


async def test_without_account_or_annotation_a_plugin_that_needs_it_is_not_asked(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert await node.pull("") == []
    node.annotations = {}
    assert await node.pull() == []
    assert not node.asked and not node.issued


async def test_a_plugin_that_needs_no_account_is_asked_without_a_token(tmp_path: Path) -> None:
    node = Node(tmp_path, TokenAttributes("reg.io", False, False))
    (found,) = await node.pull("")
    assert "serviceAccountToken" not in node.asked[0] and found.source is None


@pytest.mark.parametrize(("by_token", "kept"), [(False, 0), (True, 1)])
async def test_the_token_itself_as_password_needs_its_cache_type(
    tmp_path: Path, by_token: bool, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    answer = says().replace('"password": "p"', '"password": "token-1"')
    node = Node(tmp_path, replace(TOKENS, by_token=by_token), answer)
    assert len(await node.pull()) == kept
    assert ("needs tokenAttributes.cacheType: Token" in caplog.text) is not by_token
    assert "token-1" not in caplog.text


def test_an_image_pulled_for_an_account_is_not_for_everybody() -> None:
    source = AccountSource("ns", "builder", "u")
    mine = PullCredential({"username": "a"}, source)
    record = pull_records.granted(None, "id", "eu.reg.io/app:1", [mine], 5.0)
    assert not record.access["eu.reg.io/app"].everybody
    assert pull_records.is_known(record, "eu.reg.io/app:2", [mine])
    other = PullCredential({"username": "a"}, AccountSource("ns", "builder", "another"))
    assert not pull_records.is_known(record, "eu.reg.io/app:2", [other])
    assert not pull_records.is_known(record, "eu.reg.io/app:2", [])
    assert pull_records.decode(pull_records.encode(record)) == record
    written = json.loads(pull_records.encode(record))["credentialMapping"]["eu.reg.io/app"]
    assert written["kubernetesServiceAccounts"] == [{"uid": "u", "namespace": "ns", "name": "builder"}]
