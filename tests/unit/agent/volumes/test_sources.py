"""What pods' volumes are made from: all of it, or nothing that goes on."""

from __future__ import annotations

import asyncio

import pytest

from agent.common.model.pods import Pod
from agent.volumes.model.sources import TokenRequest
from agent.volumes.work.sources import SourceReader
from nodelib.errors import Temporary
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.fakes.volumes import FakeCertificates, FakeObjects


class _LateTokens(FakeObjects):
    """No claim can be read, and tokens come later; `kept` as TokenCache keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.issue, self.kept = asyncio.Event(), set[str]()

    async def claim(self, pod: Pod, name: str) -> None:
        raise Temporary("no answer")

    async def token(self, pod: Pod, request: TokenRequest) -> str:
        await self.issue.wait()
        self.kept.add(pod.uid)
        return ""

    def drop_pod(self, uid: str) -> None:
        self.kept.discard(uid)


async def test_a_token_that_comes_when_its_pod_is_gone_is_not_kept() -> None:
    """It was renewed for ever: the pod's other sources had failed, and nobody waited for it."""
    objects = _LateTokens()
    reader = SourceReader(objects, FakeCertificates())
    volumes: list[Json] = [
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
    ]
    found = pod(container(), volumes=volumes)
    with pytest.raises(Temporary):
        await reader.read(found)
    reader.drop_pod(found.uid)
    objects.issue.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert objects.kept == set()
