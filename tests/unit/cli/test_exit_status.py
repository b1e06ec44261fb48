"""Exit statuses, as docs/exit-status.md lists them, of every command."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app
from controlplane.config.model import API_VERSION, KIND
from tests.unit.cli.options.test_help import EVERY

PROJECT = Path(__file__).resolve().parents[3]
_TABLE = (PROJECT / "docs" / "exit-status.md").read_text().partition("| command |")[2]
_COMMANDS = [" ".join(path) for path, command in EVERY.items() if path and not getattr(command, "commands", None)]
# These hand unknown options on to other programs.
_PASSING = ("kubectl", "shell", "test")
_STATUS = (
    # 1: failed, with a message
    ("kubeconfig --name nowhere", 1),
    ("kubectl --name nowhere get pods", 1),
    ("shell node1 --name nowhere", 1),
    ("load web.tar --name nowhere", 1),
    ("unload web --name nowhere", 1),
    ("status --name nowhere", 1),
    ("service web --name nowhere", 1),
    ("view --name nowhere", 1),
    ("view --kubeconfig /nosuch", 1),
    ("export logs /nonexistent/a/b --name nowhere", 1),
    # 0: there is nothing to do
    ("down --quiet --name nowhere", 0),
    ("version", 0),
    ("completion bash", 0),
    ("", 0),
    ("help up", 0),
    ("export", 0),
    ("join --print-rights", 0),
    # 2: the command line is wrong
    ("nosuch", 2),
    ("trace a", 2),
    ("up --nodes many", 2),
    ("up --name Not_A_Name", 2),
    ("status --name Not_A_Name", 2),
    ("down --name a/../b", 2),
    ("up --nodes 0", 2),
    ("export logs", 2),
    ("completion tcsh", 2),
    ("version -o yaml", 2),
    ("up --binaries /nosuch", 2),
    ("kubectl --nosuch get pods", 2),
    ("up --memory nonsense", 2),
    ("images --free nonsense", 2),
    ("test unit lint nosuch/unit types -k x unit", 2),
    ("uninstall --purge --root /tmp", 2),
    ("addons add nosuch --name nowhere", 2),
    ("join", 2),
    ("policy explain a/b/c/d", 2),
    ("join https://x --token @/nosuch", 2),
)


@pytest.fixture(autouse=True)
def _no_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEWRIGHT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NODEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NODEWRIGHT_NAME", raising=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is told that root is needed")
@pytest.mark.parametrize(("line", "status"), _STATUS, ids=[line for line, _ in _STATUS])
def test_the_status_says_how_it_went(line: str, status: int) -> None:
    done = CliRunner().invoke(app, shlex.split(line))
    assert done.exit_code == status, done.output
    assert "Traceback" not in done.output + done.stderr
    assert ("error" in done.stderr.lower()) == (status != 0), "a failure says why on standard error"


_HEAD = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"


@pytest.mark.parametrize(
    ("text", "options", "status", "said"),
    [
        ("nosuch: 1", "", 1, "cluster.yaml, line 3"),
        ("storage: true\nkubeadm: {}", "", 1, "cluster.yaml, line 3"),
        ("networking:\n  routed: true\n  loadBalancerPool: 10.0.0.1", "", 1, "cluster.yaml, line 5"),
        ("nodes: 2\nkubeadm: {controlPlanes: 3}", "", 1, "cluster.yaml, line 3"),
        ("networking: {routed: true}", "--agent upstream", 1, "networking.routed"),
        ("kubeadm: {}", "--storage", 1, "storage is for clusters that `up` sets up itself: leave out kubeadm"),
        ("nodes: 1", "--storage --kubeadm", 2, "leave out --kubeadm"),
        ("storage: true\nkubeadm: {}", "--no-storage", 0, ""),
        ("nodes: 1", "--nodes 0", 2, "--nodes"),
    ],
)
def test_what_is_wrong_with_a_file_is_no_wrong_command_line(
    text: str, options: str, status: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "cluster.yaml").write_text(f"{_HEAD}{text}\n")
    words = ["up", "--print-config", "--config", f"{tmp_path}/cluster.yaml", *options.split()]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, said in done.stderr) == (status, True), done.output + done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is told that root is needed")
def test_a_trace_that_nobody_can_make_is_neither_an_arrival_nor_a_loss() -> None:
    done = CliRunner().invoke(app, ["trace", "a", "b", "--name", "nowhere"])
    assert done.exit_code == 2 and "error: " in done.stderr and "Traceback" not in done.output


@pytest.mark.parametrize("command", _COMMANDS)
def test_help_is_no_failure_and_an_unknown_option_is_a_usage_error(command: str) -> None:
    assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0
    if command not in _PASSING:
        done = CliRunner().invoke(app, [*command.split(), "--no-such-option"])
        assert done.exit_code == 2 and "--no-such-option" in done.output


@pytest.mark.parametrize("command", [*_COMMANDS, "agent", "kubelet", "loadbalancer", "proxy", "kube-proxy"])
def test_the_page_names_every_command(command: str) -> None:
    assert f"`{command}`" in _TABLE


def test_the_page_names_no_command_that_is_gone() -> None:
    named = {
        name
        for row in _TABLE.splitlines()
        for name in re.findall(r"`([a-z][a-z -]*)`", row.split("|")[1:2][0] if "|" in row else "")
    }
    assert named - {"agent", "kubelet", "loadbalancer", "proxy", "kube-proxy"} == set(_COMMANDS)
