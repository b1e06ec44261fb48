"""`nodewright bench`: which program its argument starts, and what becomes of the exit status."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cli.app import app
from cli.bench.lists import MEASURES, Load, rows, stored
from cli.bench.pods import Plan
from cli.bench.services.measure import Effort
from cli.commands.bench import lists, network, pods, services, soak
from nodelib.errors import Invalid

PROGRAMS = {"pods": pods, "network": network, "services": services, "lists": lists, "soak": soak}


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


def test_lists_are_compared_by_their_medians() -> None:
    def taken(value: float) -> dict[str, float]:
        return {**dict.fromkeys(MEASURES, 0.0), "seconds": value}

    load = Load(5000, 4)
    found = {(load, "pages"): [taken(one) for one in (2.0, 9.0, 1.0)], (load, "streaming"): [taken(1.0)]}
    table = rows(found)
    assert table[0] == ("5,000 Pods, 4 clients", MEASURES["seconds"], "2", "1", "0.50x")
    assert len(table) == len(MEASURES) and table[1][4] == "-"


def test_the_pods_of_a_list_are_all_others() -> None:
    found = dict(stored(600))
    assert len(found) == 600 == len({pod["metadata"]["uid"] for pod in found.values()})
    assert len({pod["status"]["podIP"] for pod in found.values()}) == 600
