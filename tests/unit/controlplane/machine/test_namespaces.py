"""Commands that run as processes of a node."""

from __future__ import annotations

import shutil

import pytest

from cli.export import sources
from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.work import node_images
from nodelib import command


@pytest.mark.skipif(not shutil.which("nsenter"), reason="needs nsenter")
async def test_root_of_a_node_does_not_see_the_environment_of_an_administrator(monkeypatch: pytest.MonkeyPatch) -> None:
    """`env` in no other namespaces than ours says what a process of the node would have."""
    monkeypatch.setenv("REGISTRY_PASSWORD", "hunter2")
    monkeypatch.setattr(sources, "is_bound", lambda _: True)
    monkeypatch.setattr(Cluster, "namespaces", lambda *_: {})
    cluster = Cluster("lab", "10.89.3.0/24", Options(nodes=1), root="/nonexistent")
    seen = [await sources.on_node(cluster, "node1", ["env"])]
    run = command.run

    async def recorded(argv: list[str], **how: object) -> command.Completed:
        at = argv.index("/ctr")
        return await run([*argv[:at], "env"], **how)  # type: ignore[arg-type]

    monkeypatch.setattr(command, "run", recorded)
    tools = Tools({"ctr": "/ctr"}, "", "")
    seen.append((await node_images._ctr(cluster, cluster.nodes[0], tools, "images", "ls")).text)
    for text in seen:
        assert "HOME=/root" in text and "hunter2" not in text
