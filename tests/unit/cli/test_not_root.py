"""What another user than root can do, and what the rest says: one sentence, and the very command line with sudo."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.nobody import as_nobody, folder_for_all

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives up root to become another user")
_LAB = {"name": "lab", "subnet": "10.89.3.0/24", "options": {}, "pod_cidr": "", "service_cidr": "", "domain": ""}
_NEEDS_ROOT = (
    "up --name lab --nodes 3",
    "down --name lab",
    "shell --name lab node1 -- ls 'a b'",
    "load --name lab 'my image.tar'",
    "unload --name lab web:v1",
    "trace --name lab node1 demo",
    "service --name lab demo",
    "doctor --cis --name lab",
    "join https://10.0.0.5:6443 --token abcdef.0123456789abcdef",
    "leave",
    "install",
    "uninstall",
    "bench pods --quick",
    "conformance --name lab --focus 'a b'",
    "conformance --scoreboard --parts 'node-.*'",
    "export logs /nonexistent/logs --name lab",
)
_READS_THE_STATE = (
    "kubeconfig --name lab",
    "kubectl --name lab get pods -o 'jsonpath={.items}'",
    "status --name lab",
)
_WORKS = (
    "--help",
    "up --help",
    "version",
    "--version",
    "completion bash",
    "join --print-rights",
)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Instead of pytest's own, which is for its user only."""
    with folder_for_all() as folder:
        yield folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with a cluster whose record only root can read, below folders that everyone can enter."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "cluster.json").write_text(json.dumps(_LAB))
    (tmp_path / "lab" / "cluster.json").chmod(0o600)
    return tmp_path


@pytest.mark.parametrize("line", _WORKS)
def test_what_needs_no_root_works(line: str) -> None:
    done = as_nobody(*shlex.split(line))
    assert (done.returncode, done.stderr) == (0, "") and done.stdout


@pytest.mark.parametrize("line", _NEEDS_ROOT)
def test_the_rest_says_so_with_the_very_command_line(line: str, state: Path) -> None:
    done = as_nobody(*shlex.split(line), NODEWRIGHT_STATE=str(state))
    assert done.returncode == (2 if line.startswith("trace") else 1) and done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first.startswith("error: `nodewright ") and " needs root: " in first
    assert second == f"  do: Run `sudo env NODEWRIGHT_STATE={state} ./nodewright {shlex.join(shlex.split(line))}`."


@pytest.mark.parametrize("line", _READS_THE_STATE)
def test_a_record_that_only_root_can_read_is_a_sentence(line: str, state: Path) -> None:
    done = as_nobody(*shlex.split(line), NODEWRIGHT_STATE=str(state))
    assert done.returncode == 1 and "[Errno" not in done.stderr
    assert done.stderr.splitlines() == [
        f"error: only root may use {state}/lab/cluster.json",
        f"  do: Run `sudo env NODEWRIGHT_STATE={state} ./nodewright {shlex.join(shlex.split(line))}`.",
    ]


def test_a_readable_record_is_enough_for_the_path_of_a_kubeconfig(state: Path) -> None:
    (state / "lab" / "cluster.json").chmod(0o644)
    done = as_nobody("kubeconfig", "--name", "lab", NODEWRIGHT_STATE=str(state))
    assert (done.returncode, done.stdout) == (0, f"{state}/lab/admin.conf\n")
