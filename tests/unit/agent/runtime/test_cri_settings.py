"""imageServiceEndpoint and runtimeRequestTimeout, on real gRPC servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cri_api.v1 import api_pb2, api_pb2_grpc

from agent.common.model.errors import CriError
from agent.runtime.edge.cri import Cri
from agent.runtime.model import CallLimits

pb: Any = api_pb2


class Runtime(api_pb2_grpc.RuntimeServiceServicer):  # type: ignore[misc]
    async def Version(self, request: Any, context: Any) -> Any:
        return pb.VersionResponse(runtime_name="runtime")

    async def ListPodSandbox(self, request: Any, context: Any) -> Any:
        await asyncio.Event().wait()


class Images(api_pb2_grpc.ImageServiceServicer):  # type: ignore[misc]
    async def ListImages(self, request: Any, context: Any) -> Any:
        return pb.ListImagesResponse(images=[{"id": "sha256:1", "repo_tags": ["r/web:1"]}])

    async def PullImage(self, request: Any, context: Any) -> Any:
        await asyncio.sleep(0.4)
        return pb.PullImageResponse(image_ref="sha256:1")


@asynccontextmanager
async def serving(path: str, add: Callable[[Any, Any], None], service: Any) -> AsyncIterator[None]:
    server = grpc.aio.server()
    add(service, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    runtime, images = f"{tmp_path}/runtime.sock", f"{tmp_path}/images.sock"
    async with (
        serving(runtime, api_pb2_grpc.add_RuntimeServiceServicer_to_server, Runtime()),
        serving(images, api_pb2_grpc.add_ImageServiceServicer_to_server, Images()),
    ):
        yield runtime, images


async def test_images_are_asked_for_at_their_own_endpoint(two: tuple[str, str]) -> None:
    cri = Cri(two[0], f"unix://{two[1]}")
    try:
        assert (await cri.version())["runtime_name"] == "runtime"
        assert [image.id for image in await cri.list_images()] == ["sha256:1"]
    finally:
        await cri.close()


async def test_without_one_they_are_asked_for_at_the_runtimes(two: tuple[str, str]) -> None:
    cri = Cri(two[0])
    try:
        with pytest.raises(CriError) as caught:
            await cri.list_images()
        assert caught.value.code == "UNIMPLEMENTED"
    finally:
        await cri.close()


async def test_a_call_has_the_time_that_is_configured_and_a_pull_has_more(two: tuple[str, str]) -> None:
    cri = Cri(*two, limits=CallLimits(0.2))
    try:
        async with asyncio.timeout(30):
            with pytest.raises(CriError) as caught:
                await cri.list_sandboxes()
            assert caught.value.code == "DEADLINE_EXCEEDED"
            assert await cri.pull_image("r/web:1", None, {}) == "sha256:1"
    finally:
        await cri.close()


def test_the_limits_that_follow_from_one() -> None:
    assert (CallLimits().call, CallLimits().sandbox, CallLimits().start) == (120, 240, 3)
    assert (CallLimits(1).sandbox, CallLimits(1).start, CallLimits(600).image) == (2, 1, 600)
