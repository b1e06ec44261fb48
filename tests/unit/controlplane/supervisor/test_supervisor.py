"""The supervisor with real processes (in no namespace): restart, reload, take over, ordered end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.standins import systemctl, systemd_run
from controlplane.suites.plan import node_suite
from controlplane.supervisor.edge import units
from controlplane.supervisor.edge.procfs import start_time
from controlplane.supervisor.model import Program
from tests.waiting import until_sync

PROJECT = str(Path(__file__).resolve().parents[4])


class Unit:
    def __init__(self, root: Path) -> None:
        self.folder, self.log = str(root / "unit"), str(root / "log" / "supervisor.log")
        self.root = root

    def program(self, name: str, script: str) -> Program:
        return Program(
            name, ("/bin/sh", "-c", script), str(self.root / "log" / f"{name}.log"), {"PATH": "/usr/bin:/bin"}, 3
        )

    def want(self, *programs: Program) -> None:
        units.write_spec(self.folder, cgroups=(), namespaces=(), programs=programs)
        units.ensure_supervisor(self.folder, self.log, PROJECT)

    def pid(self, name: str) -> int:
        row = units.programs(self.folder).get(name)
        return int(row["pid"]) if row and row["alive"] else 0

    def starts(self, name: str) -> int:
        return int(units.programs(self.folder).get(name, {"starts": 0})["starts"])


@pytest.fixture
def unit(tmp_path: Path) -> Iterator[Unit]:
    made = Unit(tmp_path)
    yield made
    pid = units.supervisor_pid(made.folder)
    if pid:
        os.kill(pid, signal.SIGTERM)
        until_sync(lambda: not units.supervisor_pid(made.folder))


def test_a_killed_program_is_started_again(unit: Unit) -> None:
    unit.want(unit.program("one", "exec sleep 600"))
    until_sync(lambda: unit.pid("one"))
    first = unit.pid("one")
    os.kill(first, signal.SIGKILL)
    until_sync(lambda: unit.pid("one") not in (0, first))
    assert unit.starts("one") == 2
    assert units.programs(unit.folder)["one"]["last_exit"] == "SIGKILL"


def test_output_goes_to_the_log(unit: Unit) -> None:
    unit.want(unit.program("talk", "echo out; echo err >&2; exec sleep 600"))
    log = unit.root / "log" / "talk.log"
    until_sync(lambda: log.exists() and log.read_text().count("\n") == 2)
    assert log.read_text() == "out\nerr\n"


def test_reload_touches_only_what_changed(unit: Unit) -> None:
    one, two = unit.program("one", "exec sleep 600"), unit.program("two", "exec sleep 600")
    unit.want(one, two)
    until_sync(lambda: unit.pid("one") and unit.pid("two"))
    first, second = unit.pid("one"), unit.pid("two")
    unit.want(one, unit.program("two", "exec sleep 601"), unit.program("three", "exec sleep 600"))
    until_sync(lambda: unit.pid("three") and unit.pid("two") not in (0, second))
    assert unit.pid("one") == first
    unit.want(one)
    until_sync(lambda: not unit.pid("two") and not unit.pid("three"))
    assert unit.pid("one") == first


def test_programs_survive_a_killed_supervisor_and_are_taken_over(unit: Unit) -> None:
    one = unit.program("one", "exec sleep 600")
    unit.want(one)
    until_sync(lambda: unit.pid("one"))
    first = unit.pid("one")
    assert units.kill_supervisor(unit.folder) == 1
    assert units.supervisor_pid(unit.folder) == 0
    assert unit.pid("one") == first
    unit.want(one)
    until_sync(lambda: units.supervisor_pid(unit.folder))
    assert unit.pid("one") == first
    os.kill(first, signal.SIGKILL)
    until_sync(lambda: unit.pid("one") not in (0, first))


def test_a_program_that_cannot_start_says_why(unit: Unit) -> None:
    unit.want(Program("none", ("/nonexistent/program",), str(unit.root / "log" / "none.log")))
    until_sync(lambda: units.programs(unit.folder).get("none", {"last_exit": ""})["last_exit"])
    assert "No such file" in units.programs(unit.folder)["none"]["last_exit"]


def test_sigterm_ends_all_even_those_that_ignore_it(unit: Unit) -> None:
    unit.want(unit.program("deaf", "trap '' TERM; while :; do sleep 0.1; done"), unit.program("one", "exec sleep 600"))
    until_sync(lambda: unit.pid("deaf") and unit.pid("one"))
    pids = [unit.pid("deaf"), unit.pid("one")]
    os.kill(units.supervisor_pid(unit.folder), signal.SIGTERM)
    until_sync(lambda: not units.supervisor_pid(unit.folder))
    assert [start_time(pid) for pid in pids] == ["", ""], "the supervisor ends last"


def test_there_is_never_a_second_one(unit: Unit) -> None:
    one = unit.program("one", "exec sleep 600")
    unit.want(one)
    first = units.supervisor_pid(unit.folder)
    unit.want(one)
    assert units.supervisor_pid(unit.folder) == first


def test_systemctl_starts_and_stops_as_kubeadm_asks(unit: Unit, capsys: pytest.CaptureFixture[str]) -> None:
    units.keep_stopped(unit.folder, "agent")
    unit.want(unit.program("agent", "exec sleep 600"), unit.program("containerd", "exec sleep 600"))
    until_sync(lambda: unit.pid("containerd"))
    assert unit.pid("agent") == 0, "it stands still until somebody starts it"

    def ask(*words: str) -> tuple[int, str]:
        status = systemctl.main([unit.folder, *words])
        return status, capsys.readouterr().out

    assert ask("is-active", "kubelet") == (3, "inactive\n")
    assert ask("is-enabled", "kubelet.service")[0] == 0 == ask("daemon-reload")[0]
    assert ask("start", "kubelet")[0] == 0 and unit.pid("agent")
    first = unit.pid("agent")
    assert ask("is-active", "--quiet", "kubelet") == (0, "active\n")
    assert ask("restart", "kubelet")[0] == 0 and unit.pid("agent") not in (0, first)
    assert "Loaded: loaded" in ask("status", "kubelet")[1]
    assert ask("stop", "kubelet")[0] == 0 and unit.pid("agent") == 0
    assert ask("status", "nginx") == (4, "Unit nginx.service could not be found.\n")
    assert ask("mask", "kubelet")[0] == 1


def test_systemd_run_makes_a_unit_that_systemctl_kills_and_restarts(
    unit: Unit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unit.want(unit.program("containerd", "exec sleep 600"))
    log = tmp_path / "reports" / "kubelet.log"
    call = [
        "-p",
        "Delegate=true",
        "-p",
        f"StandardError=append:{log}",
        "--unit=kubelet-1.service",
        "--remain-after-exit",
    ]
    assert systemd_run.main([unit.folder, *call, "/bin/sh", "-c", "echo $$HOME 5%% >&2; exec sleep 600"]) == 0
    until_sync(lambda: log.exists() and log.read_text().endswith("5%\n"))
    first = unit.pid("kubelet-1")

    def ask(*words: str) -> tuple[int, str]:
        return systemctl.main([unit.folder, *words]), capsys.readouterr().out

    running = ("list-units", "*kubelet*", "--state=running")
    assert first and "kubelet-1.service loaded active running" in ask(*running)[1]
    assert ask("kill", "kubelet-1")[0] == 0 and not start_time(first)
    assert ask(*running) == (0, "") and "inactive" in ask("list-units", "*kubelet*")[1]
    assert ask("restart", "kubelet-1")[0] == 0 and unit.pid("kubelet-1") not in (0, first)
    assert unit.pid("containerd"), "its neighbours are left alone"
    assert systemd_run.main([unit.folder, "--version"]) == 0 and "systemd 2" in capsys.readouterr().out
    assert systemd_run.main([unit.folder, "--unit=x"]) == 1


def test_containerd_of_the_suite_says_its_own_pid(unit: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    file = unit.root / "run" / "containerd.pid"
    monkeypatch.setattr(node_suite, "PID_FILE", str(file))
    unit.want(node_suite.in_own_cgroup(unit.program("containerd", "exec sleep 600"), []))
    until_sync(lambda: file.exists() and file.read_text() and unit.pid("containerd"))
    assert file.read_text() == str(unit.pid("containerd"))
