"""The list of clusters, and which cluster is meant when no name is given."""

from __future__ import annotations

import fcntl
import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app
from cli.clusters import is_stopped, line_with_name, refuse_if_stopped
from cli.commands import clusters
from cli.display.terminal import new_console
from controlplane.cluster.edge import state
from controlplane.cluster.model import CONTROL_PLANE, Cluster
from controlplane.cluster.work.down import Removed
from controlplane.cluster.work.overview import Overview, read_all
from tests.builders.services import node
from tests.fakes.apiserver import FakeApiServer

RUNNER = CliRunner()
NOWHERE = """apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: a, user: {token: a}}]
"""
NOW = 1_800_000_000.0
LAB = Overview("lab", "running", "", 2, 2, "v1.37.1", NOW - 7290, 40, 700 << 20, "nodewright-lab", "10.89.0.0/24")


def saved(root: Path, *names: str) -> dict[str, str]:
    """Clusters of these names, as far as their records go. Returns the environment that finds them."""
    for name in names:
        (root / name).mkdir()
        made = Cluster(name, "10.89.0.0/24", root=str(root))
        (root / name / "cluster.json").write_text(json.dumps(made.to_json()))
    return {"NODEWRIGHT_STATE": str(root), "NODEWRIGHT_NAME": ""}


@pytest.mark.parametrize(
    ("there", "arguments", "expect"),
    [
        pytest.param(["lab"], [], "lab", id="the only one"),
        pytest.param(["lab", "nodewright"], [], "nodewright", id="the default name"),
        pytest.param(["lab", "prod"], ["--name", "prod"], "prod", id="the one that is named"),
    ],
)
def test_which_cluster_is_meant(there: list[str], arguments: list[str], expect: str, tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["kubeconfig", *arguments], env=saved(tmp_path, *there))
    assert done.output.strip() == f"{tmp_path}/{expect}/admin.conf"


@pytest.mark.parametrize(
    ("there", "arguments", "words"),
    [
        pytest.param([], [], "Create it with `./nodewright up`.", id="none"),
        pytest.param(["lab", "prod"], [], "several clusters on this machine (lab, prod)", id="several"),
        pytest.param(["lab"], ["--name", "nodewright"], "there is: lab", id="a name that is given is meant"),
    ],
)
def test_no_cluster_is_meant(there: list[str], arguments: list[str], words: str, tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["kubeconfig", *arguments], env=saved(tmp_path, *there))
    assert done.exit_code == 1 and words in done.stderr


def test_kubectl_does_not_wait_for_a_cluster_that_is_stopped(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["kubectl", "--", "get", "pods"], env=saved(tmp_path, "tlistoff"))
    assert done.exit_code == 1
    assert "is stopped" in done.stderr and "./nodewright start --name tlistoff" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="these commands are root's")
@pytest.mark.parametrize(
    "asked",
    [
        "service demo", "trace node1 demo", "why", "status", "images", "drops", "policy list", "policy explain web",
        "shell node1 -- true", "unload x:1", "view", "node remove node2", "node add",
        "addons list", "addons add metrics", "addons remove metrics",
    ],
)  # fmt: skip
def test_what_is_asked_of_a_stopped_cluster_names_the_way_back(asked: str, tmp_path: Path) -> None:
    words = asked.split()
    there = saved(tmp_path, "tlistoff")
    (tmp_path / "tlistoff/admin.conf").write_text(NOWHERE)
    done = RUNNER.invoke(app, words, env=there)
    assert done.exit_code == (2 if words[0] == "trace" else 1)
    assert "is stopped" in done.output and "./nodewright start --name tlistoff" in done.output
    assert len(done.output.splitlines()) <= 4, done.output


@pytest.mark.parametrize("unit", [CONTROL_PLANE, "node2"])
def test_a_cluster_that_has_lost_only_its_link_is_not_stopped(unit: str, tmp_path: Path) -> None:
    """Somebody removed it: `start` is no way back, and shell, drops, load and unload do not need it."""
    cluster = Cluster("tlistoff", "10.89.0.0/24", root=str(tmp_path))
    assert is_stopped(cluster)
    folder = Path(cluster.unit_dir(unit))
    folder.mkdir(parents=True)
    with (folder / "lock").open("w", encoding="ascii") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(str(os.getpid()))
        held.flush()
        assert not is_stopped(cluster)
        refuse_if_stopped(cluster)
    assert is_stopped(cluster)


def test_who_may_not_look_at_supervisors_is_told_by_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(folder: str) -> int:
        raise PermissionError(folder)

    monkeypatch.setattr("controlplane.supervisor.edge.units.supervisor_pid", hidden)
    assert is_stopped(Cluster("tlistoff", "10.89.0.0/24"))


def test_up_never_means_another_cluster() -> None:
    assert "by default the only one" not in RUNNER.invoke(app, ["up", "--help"], env={"COLUMNS": "200"}).output
    assert "by default the only one" in RUNNER.invoke(app, ["status", "--help"], env={"COLUMNS": "200"}).output


@pytest.mark.parametrize(
    ("typed", "expect"),
    [
        ("status", "./nodewright status --name lab"),
        ("why shop/web", "./nodewright why shop/web --name lab"),
        ("kubectl get pods", "./nodewright kubectl --name lab get pods"),
        ("kubectl -- get pods", "./nodewright kubectl --name lab -- get pods"),
        ("kubectl get pods --name lab", "./nodewright kubectl --name lab get pods"),
        ("kubectl get pods --name=lab -A", "./nodewright kubectl --name lab get pods -A"),
        ("kubectl expose pod a --name other", "./nodewright kubectl --name lab expose pod a --name other"),
        ("kubectl exec web -- app --name lab", "./nodewright kubectl --name lab exec web -- app --name lab"),
        ("kubectl exec web --name lab -- app --name=lab", "./nodewright kubectl --name lab exec web -- app --name=lab"),
        ("shell node1 -- ps ax", "./nodewright shell node1 --name lab -- ps ax"),
        ("node add n3", "./nodewright node add n3 --name lab"),
    ],
)
def test_the_line_to_type(typed: str, expect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["nodewright", *typed.split()])
    assert line_with_name("lab") == expect


def test_a_name_in_the_command_of_a_pod_is_not_typed_for_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["kubectl", "exec", "web", "--", "app", "--name", "prod"]
    monkeypatch.setattr(sys, "argv", ["nodewright", *words])
    done = RUNNER.invoke(app, words, env=saved(tmp_path, "lab", "prod"))
    assert "Say which one: `./nodewright kubectl --name lab exec web -- app --name prod`" in done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lba", "Did you mean lab? If not, create it with `./nodewright up --name lba`."),
        ("other", "do: Create it with `./nodewright up --name other`."),
    ],
)
def test_a_cluster_of_almost_that_name_is_named(name: str, said: str, tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["status", "--name", name], env=saved(tmp_path, "lab", "prod"))
    assert done.exit_code == 1 and said in done.stderr


def shown(*found: Overview) -> str:
    out = io.StringIO()
    clusters.show(found, NOW, new_console(out, width=80))
    return out.getvalue()


def test_the_list() -> None:
    old = replace(LAB, name="old", state="stopped", ready=0, version="", processes=0, memory=0, created=0)
    ill = replace(LAB, name="ill", state="broken", ready=1, problem="nothing keeps node2 running: mend it")
    lines = shown(LAB, old, ill).splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["NAME", "STATE", "READY", "KUBERNETES", "AGE", "MEMORY"],
        ["lab", "running", "2/2", "v1.37.1", "2h1m", "700Mi"],
        ["old", "stopped", "0/2", "-", "-", "-"],
        ["ill", "broken", "1/2", "v1.37.1", "2h1m", "700Mi"],
    ]
    assert lines[4] == "ill: nothing keeps node2 running: mend it"
    assert "./nodewright up" in shown()


def test_a_cluster_as_json() -> None:
    found = clusters.document(LAB, NOW)
    assert (found["name"], found["state"], found["age_seconds"], found["memory_bytes"]) == (
        "lab",
        "running",
        7290,
        700 << 20,
    )
    assert found["created"] == "2027-01-15T05:58:30Z"


async def test_a_cordoned_node_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As kubectl says it: Ready,SchedulingDisabled."""
    for name, value in saved(tmp_path, "lab").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("controlplane.machine.edge.cgroups.members", lambda *_: {os.getpid()})
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ready = {"type": "Ready", "status": "True"}
    async with FakeApiServer() as api:
        (tmp_path / "lab/admin.conf").write_text(NOWHERE.replace("https://127.0.0.1:1", api.url))
        api.objects["/version"] = {"gitVersion": "v1.37.1"}
        await api.put("/api/v1/nodes/node1", node("node1", conditions=[ready], taints=[cordon]))
        await api.put("/api/v1/nodes/node2", node("node2", conditions=[{**ready, "status": "Unknown"}]))
        found = {one.name: one for one in await read_all()}
    assert (found["lab"].ready, found["lab"].nodes) == (1, 2)


def test_the_records_of_clusters_that_do_not_run(tmp_path: Path) -> None:
    env = saved(tmp_path, "tlistone")
    (tmp_path / "tlisttwo").mkdir()
    (tmp_path / "tlisttwo" / "cluster.json").write_text("{")
    done = RUNNER.invoke(app, ["clusters", "-o", "json"], env=env)
    found = {one["name"]: one for one in json.loads(done.output)}
    assert done.exit_code == 1, "one is broken"
    assert (found["tlistone"]["state"], found["tlistone"]["nodes"]) == ("stopped", 2)
    assert found["tlisttwo"]["state"] == "broken" and "down --name tlisttwo" in found["tlisttwo"]["problem"]
    for command in ("stop", "start"):
        done = RUNNER.invoke(app, [command, "--name", "none"], env=env)
        assert done.exit_code == 1 and "no such cluster" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is told that root is needed")
@pytest.mark.parametrize(
    ("there", "words", "status", "said"),
    [
        (["one", "two"], ["down"], 1, "Say which one: `./nodewright down --name NAME`."),
        (["one", "two"], ["down", "--name", "lab"], 0, "there is no cluster lab on this machine"),
        ([], ["down"], 0, "There are no other clusters."),
    ],
)
def test_down_without_a_name_guesses_none_of_several(
    there: list[str], words: list[str], status: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> Removed:
        return Removed()

    monkeypatch.setattr("cli.commands.down.down", nothing)
    monkeypatch.setattr(state, "clusters", lambda: there)
    monkeypatch.setattr(state, "load", lambda name: None)
    monkeypatch.setattr("sys.argv", ["nodewright", *words])
    done = CliRunner().invoke(app, words)
    assert done.exit_code == status and said in done.output, done.output
