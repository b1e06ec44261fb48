"""`load` and `unload`: an image that no registry has runs on the node that it was loaded into, and on no other."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from nodelib.command import run
from nodelib.kube.errors import ApiError
from tests.builders.pods import manifest, sleeper
from tests.cluster.image_archives import busybox_named
from tests.cluster.test_trace import nodewright
from tests.cluster.world import World, condition, holds

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]


async def test_an_archive_is_put_on_a_node_and_its_image_runs_there(world: World, tmp_path: Path) -> None:
    name, archive = f"example.test/{world.namespace}:1", world.folder("node1") / "mine.tar"
    ctr = [world.cluster.tools["ctr"], "-n", "k8s.io", "images"]
    await asyncio.to_thread(busybox_named, name, archive)
    await run(["gzip", str(archive)])
    status, text = await nodewright(world, "load", f"{archive}.gz", str(tmp_path / "missing.tar"), "--node", "node2")
    assert status == 1 and f"{name}: on node2" in text and "missing.tar" in text, text
    never = {"image": name, "imagePullPolicy": "Never"}
    try:
        await world.create(manifest("there", sleeper(**never), nodeName="node2"))
        await world.create(manifest("not-there", sleeper(**never), nodeName="node1"))
        await world.ready("there")

        async def refused() -> bool:
            found = await world.get("not-there")
            return "ErrImageNeverPull" in str(found["status"]) and condition(found, "Ready")["status"] == "False"

        await holds(refused, "node1 was not given it")
        status, text = await nodewright(world, "unload", name)
        assert status == 1 and "of the node" in text, text
        assert f"{name} on node2" in text and "Delete the pods that use it" in text, text
        await world.delete("there", grace=1)
        await world.gone("there")

        async def unloaded() -> bool:  # the container's record goes a moment after the pod
            status, text = await nodewright(world, "unload", name)
            return status == 0 and f"{name}: removed from node2" in text

        await holds(unloaded, "nothing uses it any more")
        listed = await world.in_node("node2", *ctr, "ls", "-q")
        assert name not in listed.text
        status, text = await nodewright(world, "unload", name)
        assert status == 1 and "no such image" in text, text
    finally:
        with contextlib.suppress(ApiError):  # deleted above, if all went well
            await world.delete("there", grace=1)
        await world.gone("there")
        await world.in_node("node2", *ctr, "rm", name, check=False)


async def test_an_image_of_docker_is_loaded_by_its_name(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker is stood in for by a program that prints an archive: machines of tests need not have it."""
    name, archive = f"example.test/{world.namespace}:1", world.folder("node1") / "docker.tar"
    await asyncio.to_thread(busybox_named, name, archive)
    (tmp_path / "docker").write_text(
        f'#!/bin/sh\n[ "$2" = {name} ] || {{ echo no such image >&2; exit 1; }}\ncat {archive}\n'
    )
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    try:
        status, text = await nodewright(world, "load", name, "example.test/other:1", "--node", "node2")
        assert status == 1 and f"{name}: from docker" in text and f"{name}: on node2" in text, text
        assert "docker: no such image" in text and "podman" in text, text
    finally:
        status, text = await nodewright(world, "unload", name)
        assert status == 0, text
