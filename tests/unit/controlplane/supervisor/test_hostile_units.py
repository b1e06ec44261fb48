"""The folder of a node's supervisor: pods that are root there write what they like, and `down` works all the same."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from controlplane.machine.edge import process_one
from controlplane.supervisor.edge import units
from nodelib import file_trees
from nodelib.errors import Temporary
from tests.builders.wrong_types import WRONG, mutants


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "loop"])
def test_a_lock_that_is_none(tmp_path: Path, kind: str) -> None:
    lock = tmp_path / "lock"
    match kind:
        case "link":
            lock.symlink_to("/etc/passwd")
        case "folder":
            lock.mkdir()
        case "pipe":
            os.mkfifo(lock)
        case "loop":
            lock.symlink_to("lock")
    assert units.supervisor_pid(str(tmp_path)) == 0
    assert units.kill_supervisor(str(tmp_path)) == 0


@pytest.mark.parametrize("pid", [0, -1, 1 << 22, 10**30])
def test_no_process_has_such_a_number(pid: int) -> None:
    assert process_one.outer_pid(os.getpid(), pid + (pid == 1 << 22)) == 0


def test_a_state_of_wrong_types(tmp_path: Path) -> None:
    row = {"pid": 5, "starts": 1, "start_time": "77", "last_exit": "exit status 1"}
    for mutant in mutants({"agent": row}):
        (tmp_path / "state.json").write_text(json.dumps(mutant))
        for found in units.programs(str(tmp_path)).values():
            assert isinstance(found["pid"], int) and isinstance(found["starts"], int)
            assert isinstance(found["last_exit"], str) and found["alive"] is False
        units.terminate(str(tmp_path), "agent")


def test_a_specification_of_wrong_types(tmp_path: Path) -> None:
    spec = {"programs": [{"name": "agent", "argv": ["a", "b"]}]}
    for mutant in [*mutants(spec), *WRONG]:
        (tmp_path / "spec.json").write_text(json.dumps(mutant))
        assert all(isinstance(one, str) for one in units.program_names(str(tmp_path)))
        assert all(isinstance(one, str) for one in units.arguments(str(tmp_path), "agent"))


def test_links_in_a_tree_do_not_multiply_its_files(tmp_path: Path) -> None:
    """glob's ** takes two links to "." for 2^40 folders."""
    (tmp_path / "pki").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "pki" / name).symlink_to(".")
    (tmp_path / "pki" / "one.crt").touch()
    deep = tmp_path / "pki"
    for _ in range(20):
        deep = deep / "d"
    deep.mkdir(parents=True)
    began = time.monotonic()
    assert file_trees.named(str(tmp_path), ".crt") == [str(tmp_path / "pki" / "one.crt")]
    assert time.monotonic() - began < 5
    assert file_trees.named(str(tmp_path / "none"), ".crt") == []
    assert len(file_trees.named(str(tmp_path), "", most=3)) <= 3


@pytest.mark.parametrize(
    ("alive", "said", "to_do"),
    [
        (True, "has not started its supervisor within 0 s", "busy"),
        (False, "process 1 of the node ended", "`up` again."),
    ],
)
def test_a_node_that_is_late_is_told_from_one_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: bool, said: str, to_do: str
) -> None:
    monkeypatch.setattr(process_one, "is_machine", lambda lock: True)
    answers = iter([0])  # nobody to signal; from then on it lives or has ended
    monkeypatch.setattr(process_one, "alive", lambda lock: next(answers, int(alive)))
    monkeypatch.setattr(units, "_PATIENCE", 0)
    with pytest.raises(Temporary, match=said) as caught:
        units.ensure_supervisor(str(tmp_path), str(tmp_path / "log"), "")
    assert to_do in caught.value.action
