"""What nodes run is compiled where they cannot write it: an agent that compiles itself starts three times as late."""

from __future__ import annotations

from pathlib import Path

from controlplane.cluster.work.compiled import compile_modules


def test_the_modules_that_nodes_run_are_compiled_once(tmp_path: Path) -> None:
    for name in ("agent", "proxy", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.py").write_text("x = 1\n")
    compile_modules(str(tmp_path))
    found = sorted(tmp_path.rglob("*.pyc"))
    assert [path.parent.parent.name for path in found] == ["agent", "proxy"]
    times = [path.stat().st_mtime_ns for path in found]
    compile_modules(str(tmp_path))
    assert [path.stat().st_mtime_ns for path in found] == times
