"""ADD asks the policy daemon before it answers, and leaves nothing behind if the pod may not run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cni.edge import policy
from cni.model import Attachment, AttachmentKey
from cni.spec.arguments import Args
from nodelib.addresses import parse_address
from nodelib.errors import Temporary
from nodelib.json_values import Json

ADDED = Attachment(AttachmentKey("c1", "eth0"), (parse_address("10.0.0.9"), parse_address("fd00::9")))
ARGS = Args(
    "ADD", "c1", "eth0", "/n", {"K8S_POD_NAMESPACE": "a", "K8S_POD_NAME": "web", "K8S_POD_UID": "u1", "IP": "x"}
)


@asynccontextmanager
async def daemon(path: Path, answer: Callable[[Json], bytes]) -> AsyncIterator[list[Json]]:
    asked: list[Json] = []

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(json.loads(await reader.readline()))
        writer.write(answer(asked[-1]))
        writer.close()

    async with await asyncio.start_unix_server(client, str(path)):
        yield asked


async def test_the_question_names_the_pod_and_its_addresses(tmp_path: Path) -> None:
    async with daemon(tmp_path / "s", lambda _: b'{"protected": true}\n') as asked:
        await policy.protect(str(tmp_path / "s"), ARGS, ADDED)
    assert asked == [{"namespace": "a", "name": "web", "uid": "u1", "addresses": ["10.0.0.9", "fd00::9"]}]


async def test_the_question_names_the_span_that_it_is_asked_for(tmp_path: Path) -> None:
    async with daemon(tmp_path / "s", lambda _: b'{"protected": true}\n') as asked:
        await policy.protect(str(tmp_path / "s"), ARGS, ADDED, "00-1-2-01")
    assert asked[0]["traceparent"] == "00-1-2-01"


async def test_a_refusal_has_the_daemon_s_words(tmp_path: Path) -> None:
    said = b'{"protected": false, "error": "no memory", "action": "wait"}\n'
    async with daemon(tmp_path / "s", lambda _: said):
        with pytest.raises(Temporary, match="no memory") as caught:
            await policy.protect(str(tmp_path / "s"), ARGS, ADDED)
    assert caught.value.action == "wait"


@pytest.mark.parametrize("said", [b"", b"\n", b"[]\n", b'{"protected": "yes"}\n', b"x" * 100_000])
async def test_an_answer_that_is_none_is_a_refusal(
    tmp_path: Path, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "_STARTS_WITHIN", 0.1)
    async with daemon(tmp_path / "s", lambda _: said):
        with pytest.raises(Temporary):
            await policy.protect(str(tmp_path / "s"), ARGS, ADDED)


async def test_without_a_daemon_the_pod_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_STARTS_WITHIN", 0.1)
    with pytest.raises(Temporary, match="policy daemon cannot be asked") as caught:
        await policy.protect(str(tmp_path / "s"), ARGS, ADDED)
    assert "python -m policy" in caught.value.action


async def test_a_daemon_that_starts_a_little_later_is_waited_for(tmp_path: Path) -> None:
    waiting = asyncio.create_task(policy.protect(str(tmp_path / "s"), ARGS, ADDED))
    await asyncio.sleep(0)
    async with daemon(tmp_path / "s", lambda _: b'{"protected": true}\n'):
        await asyncio.wait_for(waiting, 30)


async def test_a_daemon_that_was_killed_before_it_answered_is_asked_again(tmp_path: Path) -> None:
    answers = iter([b"", b"", b'{"protected": true}\n'])
    async with daemon(tmp_path / "s", lambda _: next(answers)) as asked:
        await policy.protect(str(tmp_path / "s"), ARGS, ADDED)
    assert len(asked) == 3


async def test_nobody_is_asked_where_there_is_no_daemon_or_no_pod(tmp_path: Path) -> None:
    await policy.protect("", ARGS, ADDED)
    await policy.protect(str(tmp_path / "missing"), Args("ADD", "c1", "eth0", "/n"), ADDED)
