"""The command line as a whole: help, usage errors, and what is refused before anything is done."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app

PROJECT = Path(__file__).resolve().parents[3]
RUNNER = CliRunner()
COMMANDS = {
    "Cluster": ("up", "down", "kubectl", "kubeconfig", "shell", "load"),
    "Diagnosis": ("status", "why", "doctor", "images", "trace", "service", "version"),
    "Nodes": ("join", "leave", "install", "uninstall", "payload", "package"),
    "Daemons": ("agent", "kubelet", "kube-proxy", "proxy"),
    "Tests": ("test", "conformance", "bench"),
}
EVERY = [command for listed in COMMANDS.values() for command in listed]


def test_help_names_every_command_and_where_to_start() -> None:
    text = RUNNER.invoke(app, ["--help"]).output
    assert "./nodewright up" in text
    panels = re.split(r"╭─ (\w+) ─+╮", text)[1:]
    shown = {
        title: tuple(re.findall(r"^│ ([a-z-]+) ", panel, re.MULTILINE))
        for title, panel in zip(panels[::2], panels[1::2], strict=True)
    }
    assert {title: found for title, found in shown.items() if title != "Options"} == COMMANDS


@pytest.mark.parametrize("command", ["", *(one for one in EVERY if one not in COMMANDS["Daemons"])])
def test_help_shows_value_names_and_no_python_types(command: str) -> None:
    done = RUNNER.invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    assert done.exit_code == 0
    assert re.findall(r"<\w[^>]*>", done.output) == []
    assert not re.search(r"\b(str|int|float|bool|Path|list\[|range)\b", done.output.partition("─ Options")[2])


@pytest.mark.parametrize(
    "command",
    ["up", "kubectl", "load", "why", "doctor", "images", "trace", "service", "join", "test", "conformance", "bench"],
)
def test_help_teaches_by_example(command: str) -> None:
    text = RUNNER.invoke(app, [command, "--help"]).output
    assert "Examples" in text
    assert f"./nodewright {command}" in text


@pytest.mark.parametrize("command", ["bench", "trace", "service", "load", "payload"])
def test_a_missing_argument_is_a_usage_error(command: str) -> None:
    done = RUNNER.invoke(app, [command])
    assert done.exit_code == 2 and "Missing argument" in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--nodes", "0"],
        ["up", "--proxy-mode", "ipvs"],
        ["up", "--agent", "other"],
        ["conformance", "--tier", "all"],
        ["up", "--unknown"],
    ],
)
def test_bad_options_are_usage_errors(arguments: list[str]) -> None:
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code == 2 and arguments[1] in done.output


def test_no_such_cluster_says_how_to_make_one(tmp_path: Path) -> None:
    done = _cli("kubeconfig", "--name", "nowhere", NODEWRIGHT_STATE=str(tmp_path))
    assert done.returncode == 1
    assert "no such cluster" in done.stderr
    assert "./nodewright up --name nowhere" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--nme", "x", "--", "get", "pods"], ["--nme=x"], ["--", "--plain", "get", "pods"]], ids=" ".join
)
def test_a_misspelt_option_is_not_handed_to_kubectl(arguments: list[str], tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["kubectl", *arguments], env={"NODEWRIGHT_STATE": str(tmp_path)})
    assert done.exit_code == 1 and "unknown option: neither nodewright nor kubectl takes it" in done.stderr
    assert ("Did you mean --name?" in done.stderr) == ("nme" in arguments[0])


def test_options_of_kubectl_before_its_verb_are_let_through(tmp_path: Path) -> None:
    for arguments in (["--namespace", "x", "get", "pods"], ["--", "-v=6", "get", "pods"], ["get", "pods", "--nme"]):
        done = RUNNER.invoke(app, ["kubectl", *arguments], env={"NODEWRIGHT_STATE": str(tmp_path)})
        assert "no such cluster" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="an image is imported as root")
def test_what_is_no_image_is_refused_before_any_node_is_asked(tmp_path: Path) -> None:
    record = {"name": "lab", "subnet": "10.89.3.0/24", "options": {}, "pod_cidr": "", "service_cidr": "", "domain": ""}
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "cluster.json").write_text(json.dumps(record))
    (tmp_path / "junk.tar").write_text("junk")
    with tarfile.open(tmp_path / "exported.tgz", "w:gz") as tar:
        tar.add(tmp_path / "junk.tar", "bin/sh")
    (tmp_path / "squeezed").write_bytes(b"\x28\xb5\x2f\xfd..")
    (tmp_path / "empty").touch()
    here = {"NODEWRIGHT_STATE": str(tmp_path)}
    for file, why in {
        "missing.tar": "no such file",
        "junk.tar": "not a readable tar",
        "exported.tgz": "docker export",
        "squeezed": "zstd -d",
        "empty": "not a readable tar",
        "lab": "Is a directory",
    }.items():
        done = RUNNER.invoke(app, ["load", str(tmp_path / file), "--name", "lab"], env=here)
        assert done.exit_code == 1 and why in done.stderr and "Traceback" not in done.stderr, done.stderr
    done = RUNNER.invoke(app, ["load", str(tmp_path / "junk.tar"), "--name", "lab", "--node", "n9"], env=here)
    assert "There are: node1, node2" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="gives up root to become another user")
@pytest.mark.parametrize("command", ["up", "down"])
def test_other_users_than_root_are_refused(command: str, tmp_path: Path) -> None:
    # Imported first: the interpreter itself may lie where only root can read.
    code = f"import os; from cli.commands import {command} as c; from cli.errors import reported\n"
    code += "os.setgid(65534); os.setuid(65534)\nwith reported(): c.run('x'" + (", {})" if command == "up" else ")")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(PROJECT)}
    )
    assert done.returncode == 1
    assert "needs root" in done.stderr
    assert f"Run `sudo ./nodewright {command}`." in done.stderr


def test_a_start_imports_nothing_heavy() -> None:
    code = (
        "import sys, cli.app; print([m for m in ('pyroute2', 'aiohttp', 'cryptography', 'grpc') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(PROJECT)}
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def _cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **environment},
    )
