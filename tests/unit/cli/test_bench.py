from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cli.app import app
from cli.commands import bench, bench_network, bench_services, bench_soak

PROGRAMS = {
    "pods": (bench, "pods"),
    "network": (bench_network, "run"),
    "services": (bench_services, "services"),
    "soak": (bench_soak, "soak"),
}


@pytest.mark.parametrize("what", list(PROGRAMS))
def test_one_program_measures_and_no_other(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    for name, (module, function) in PROGRAMS.items():
        monkeypatch.setattr(module, function, lambda *_, _name=name, **__: called.append(_name))
    done = CliRunner().invoke(app, ["bench", what])
    assert (called, done.exit_code) == ([what], 0)


@pytest.mark.parametrize(("differed", "status"), [(True, 1), (False, 0)])
def test_a_soak_that_saw_a_difference_fails(differed: bool, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_soak, "soak", lambda **_: differed)
    assert CliRunner().invoke(app, ["bench", "soak"]).exit_code == status
