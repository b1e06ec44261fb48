"""`load`: an image that no registry has runs on the node that it was loaded into, and on no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodelib.command import run
from tests.builders.pods import BUSYBOX, manifest, sleeper
from tests.cluster.test_trace import nodewright
from tests.cluster.world import World, condition, holds

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]


async def test_an_archive_is_put_on_a_node_and_its_image_runs_there(world: World, tmp_path: Path) -> None:
    name, archive = f"example.test/{world.namespace}:1", world.folder("node1") / "mine.tar"
    ctr = [world.cluster.tools["ctr"], "-n", "k8s.io", "images"]
    await world.in_node("node1", *ctr, "tag", BUSYBOX, name)
    try:
        await world.in_node("node1", *ctr, "export", "--local", str(archive), name)
    finally:
        await world.in_node("node1", *ctr, "rm", name)
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
    finally:
        await world.delete("there", grace=1)
        await world.gone("there")
        await world.in_node("node2", *ctr, "rm", name)
