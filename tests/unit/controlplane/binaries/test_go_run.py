"""Go's output while it runs, and that it does not outlive who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane.binaries.edge.go_run import list_packages, run_go, source_bytes
from controlplane.binaries.model import TABLE
from controlplane.binaries.plan.go_runs import GoRun
from controlplane.binaries.work import ensure
from nodelib.command import CommandError
from nodelib.errors import Permanent

PATIENCE = 60.0  # seconds


def test_lines_are_seen_while_it_runs(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    script = f"echo a/b >&2; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo c >&2"

    def look(lines: list[str]) -> None:
        seen.append(lines)
        (tmp_path / "go").touch()

    run_go(["sh", "-c", script], cwd=tmp_path, env=os.environ, output=tmp_path / "out", look=look)
    assert seen[0] == ["a/b"]


def test_a_failure_says_what_was_printed(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"exit status 3: x\.go:1: undefined"):
        run_go(
            ["sh", "-c", "echo 'x.go:1: undefined' >&2; exit 3"],
            cwd=tmp_path,
            env=os.environ,
            output=tmp_path / "out",
            look=lambda lines: None,
        )


def test_it_ends_with_who_started_it(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from controlplane.binaries.edge.go_run import run_go\n"
        "run_go(['sh', '-c', 'echo $$ > pid; exec sleep 1000'], cwd=Path('.'), env=os.environ, output=Path('out'),"
        " look=lambda lines: None)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": _root()})
    try:
        pid = int(_soon(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()))
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert _soon(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes())


def test_packages_are_read_one_object_after_the_other(tmp_path: Path) -> None:
    text = '{"ImportPath": "a", "Stale": true}\n{\n "ImportPath": "b {c}"\n}\n'
    argv = ["printf", "%s", text]
    names = [package["ImportPath"] for package in list_packages(argv, cwd=tmp_path, env=os.environ)]
    assert names == ["a", "b {c}"]


def test_a_packages_size_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.go").write_text("package a\n")
    assert source_bytes({"Dir": str(tmp_path), "GoFiles": ["a.go", "gone.go"]}) == 10
    assert source_bytes({"ImportPath": "unsafe"}) == 0


def test_a_failed_build_names_the_binaries_the_step_and_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    go.write_text(
        '#!/bin/sh\n[ "$1" = list ] && exit 0\nprintf "k8s.io/api\\nno space left on device\\n" >&2\nexit 1\n'
    )
    go.chmod(0o755)
    monkeypatch.setattr("controlplane.binaries.work.find_go", lambda cache, progress, what: go)
    with pytest.raises(Permanent) as caught:
        ensure(["kubectl", "ctr"], cache_dir=tmp_path / "cache")
    said = str(caught.value)
    assert "kubectl, ctr" in said
    assert "go build in" in said
    assert "no space left on device" in said
    assert "k8s.io/api" not in said
    assert not list((tmp_path / "cache/bin").rglob(".work-*"))


def test_one_run_builds_every_missing_binary_under_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    go.write_text(
        '#!/bin/sh\n[ "$1" = list ] && exit 0\necho run >>"$(dirname "$0")/runs"\n'
        'while [ "$1" != -o ]; do shift; done\nfor file in nonewprivs server; do echo x >"$2$file"; done\n'
    )
    go.chmod(0o755)
    monkeypatch.setattr("controlplane.binaries.work.find_go", lambda cache, progress, what: go)
    found = ensure(["nnp", "etcd-server"], cache_dir=tmp_path / "cache")
    assert (found.path("nnp").name, found.path("etcd-server").name) == ("nnp", "etcd-server")
    assert found.path("nnp").exists()
    assert found.path("etcd-server").exists()
    ensure(["nnp", "etcd-server"], cache_dir=tmp_path / "cache")
    assert (tmp_path / "runs").read_text() == "run\n"
    assert GoRun((TABLE["nnp"], TABLE["etcd-server"])).label == "nnp, etcd-server"


def _root() -> str:
    return str(Path(__file__).resolve().parents[4])


def _soon(look: Callable[[], object]) -> str:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := look():
            return str(found)
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE:g} s")
