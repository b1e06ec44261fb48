"""Tools find our daemons by the names of upstream's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
_CALLED = (
    "import sys; from nodelib.daemons.process_name import answer_to; answer_to('kubelet', sys.argv[1:]);"
    " print('there', flush=True); sys.stdin.read()"
)
# Runs at the end of any program of Python.
_SAY = """import atexit, sys
def say():
    for name in ("comm", "cmdline"):
        with open(f"/proc/self/{name}") as file:
            print("seen:", file.read().rstrip("\\0\\n").replace("\\0", " "), file=sys.stderr)
atexit.register(say)
"""


def _look(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def test_tools_find_a_process_by_its_name() -> None:
    asked = [sys.executable, "-c", _CALLED, "--config=a b", "é"]
    with subprocess.Popen(asked, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "there\n"
            assert _look(process.pid, "comm") == "kubelet\n"
            assert _look(process.pid, "cmdline").rstrip("\0").split("\0") == ["kubelet", "--config=a b", "é"]
            for tool in (("pidof", "kubelet"), ("pgrep", "-x", "kubelet"), ("ps", "-C", "kubelet", "-o", "pid=")):
                if shutil.which(tool[0]):
                    found = subprocess.run(tool, capture_output=True, text=True).stdout.split()
                    assert str(process.pid) in found, tool
            shown = subprocess.run(("ps", "-o", "args=", "-p", str(process.pid)), capture_output=True, text=True)
            assert shown.stdout.startswith("kubelet --config=a b")
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("answer_to('x' * 3000, [])", "x" * 15),  # there is no room for it in the command line
        ("answer_to('kubelet', ['--another'])", "python"),
    ],
)
def test_the_command_line_stays_where_it_cannot_be_right(call: str, name: str) -> None:
    asked = [sys.executable, "-c", _CALLED.replace("answer_to('kubelet', sys.argv[1:])", call), "--config=a"]
    with subprocess.Popen(asked, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "there\n"
            assert _look(process.pid, "comm").strip().startswith(name)
            assert _look(process.pid, "cmdline").split("\0")[:-1] == asked
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("cli.node_main", "kubelet"),
        ("agent", "kubelet"),
        ("cli agent", "kubelet"),
        ("cli kubelet", "kubelet"),
        ("proxy", "kube-proxy"),
        ("cli proxy", "kube-proxy"),
        ("cli kube-proxy", "kube-proxy"),
    ],
)
def test_every_way_to_start_a_daemon_gives_it_upstreams_name(tmp_path: Path, command: str, name: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(_SAY)
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), "--version"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("seen:")] == [
        f"seen: {name}",
        f"seen: {name} --version",
    ]
