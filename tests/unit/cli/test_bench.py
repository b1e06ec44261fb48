"""`nodewright bench`: which program its argument starts, and what becomes of the exit status."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cli.app import app
from cli.bench.pods import Plan
from cli.bench.services.measure import Effort
from cli.commands.bench import network, pods, services, soak
from nodelib.errors import Invalid

PROGRAMS = {"pods": pods, "network": network, "services": services, "soak": soak}


@pytest.mark.parametrize("what", list(PROGRAMS))
def test_one_program_measures_and_no_other(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    for name, module in PROGRAMS.items():
        monkeypatch.setattr(module, "run", lambda *_, _name=name, **__: called.append(_name))
    done = CliRunner().invoke(app, ["bench", what])
    assert (called, done.exit_code) == ([what], 0)


@pytest.mark.parametrize(("differed", "status"), [(True, 1), (False, 0)])
def test_a_soak_that_saw_a_difference_fails(differed: bool, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "run", lambda **_: differed)
    assert CliRunner().invoke(app, ["bench", "soak"]).exit_code == status


def test_options_reach_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr(pods, "run", lambda **options: given.update(options))
    CliRunner().invoke(app, ["bench", "pods", "--peer", "upstream", "--quick", "--burst", "7"])
    plan = given["plan"]
    assert isinstance(plan, Plan)
    assert (given["peer"], given["write"], plan.burst, plan.serial) == (True, False, 7, Plan.quick().serial)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("steps", "cold,warm", "unknown step 'warm'"), ("sizes", "many", "many")],
)
def test_bad_lists_name_their_option(option: str, value: str, message: str) -> None:
    options = {"modes": "iptables", "sizes": "10", "steps": "cold", option: value}
    with pytest.raises(Invalid, match=message) as caught:
        services.request(peer=False, dense=False, effort=Effort(), **options)
    assert caught.value.obj == f"--{option}"
