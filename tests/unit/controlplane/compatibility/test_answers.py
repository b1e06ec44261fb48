"""Every gate, field and flag of upstream's is answered, and no answer names what is not there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from agent.config.bind import bindings
from agent.config.flags import FIELD_FLAGS, INERT_FLAGS
from agent.config.load import switched_gates
from agent.config.schema import FIELDS
from agent.settings import Settings
from controlplane.compatibility.model import Row
from controlplane.compatibility.work import FEATURES, PAGE, compatibility_page, features_page, node_gates, programs
from nodelib.upstream import answers
from nodelib.upstream.answers import Answer, Kind
from proxy.config.file import SUPPORTED
from proxy.config.settings import Settings as ProxySettings
from tests.unit.controlplane.compatibility.gaps import answered_for_nothing, unanswered
from tests.unit.controlplane.compatibility.settings_read import dataclasses_of, read_settings

ROOT = Path(__file__).resolve().parents[4]
PROGRAMS = ("kubelet", "kube-proxy")
_NO_TEST_YET = 22  # obeyed, and no test is named that fails without it; it only ever becomes less


def named() -> Iterator[tuple[str, Answer]]:
    for name in PROGRAMS:
        yield from ((f"{name} field {path}", answer) for path, answer in answers.field_answers(name).items())
        yield from ((f"{name} flag --{flag}", answer) for flag, answer in answers.flag_answers(name).items())
    yield from ((f"gate {gate}", answer) for gate, answer in answers.gate_answers().items())


def test_everything_that_upstream_has_is_answered() -> None:
    assert not list(unanswered(programs(), node_gates()))


def test_an_answer_that_is_missing_is_noticed() -> None:
    rows = [row for program in programs() for row in program.fields]
    without = [Row(row.name, row.default, None) for row in rows[:1]]
    assert list(unanswered((), (*without, *node_gates()))) == [f"feature gate {rows[0].name}"]


def test_nothing_is_answered_that_upstream_does_not_have() -> None:
    given = {name: (answers.field_answers(name), answers.flag_answers(name)) for name in PROGRAMS}
    facts = {name: answers.facts(name) for name in (*PROGRAMS, "gates")}
    assert not list(answered_for_nothing(given, answers.gate_answers(), facts))
    given["kubelet"] = ({"frobnicate": Answer(Kind.OBEYED)}, {})
    assert list(answered_for_nothing(given, {"Frob": Answer(Kind.ABSENT)}, facts)) == [
        "kubelet field frobnicate",
        "feature gate Frob",
    ]


@pytest.mark.parametrize(("what", "answer"), [pytest.param(*each, id=each[0]) for each in named()])
def test_an_answer_says_all_that_is_needed(what: str, answer: Answer) -> None:
    if answer.kind is Kind.OBEYED:
        assert not what.startswith("gate ") or (answer.where and (ROOT / answer.where).exists()), answer.where
        assert not answer.test or _is_test(answer.test), answer.test
    else:
        assert answer.instead and not answer.test and not answer.where


def test_the_number_of_answers_without_a_test_does_not_grow() -> None:
    without = [what for what, answer in named() if answer.kind is Kind.OBEYED and not answer.test]
    assert len(without) <= _NO_TEST_YET, without


def test_the_agent_says_of_a_setting_what_its_answer_says() -> None:
    obeyed = {path for path, answer in answers.field_answers("kubelet").items() if answer.kind is Kind.OBEYED}
    refused = {"runOnce"}  # there is only one value that it may have
    assert {path for path, entry in FIELDS.items() if entry.obeyed} == obeyed | refused
    others = {flag for flag, answer in answers.flag_answers("kubelet").items() if answer.kind is not Kind.OBEYED}
    assert others == set(INERT_FLAGS)
    assert not set(answers.flag_answers("kubelet")) & set(FIELD_FLAGS)


def test_the_proxy_says_of_a_setting_what_its_answer_says() -> None:
    obeyed = {path for path, answer in answers.field_answers("kube-proxy").items() if answer.kind is Kind.OBEYED}
    assert obeyed == set(SUPPORTED)


def test_every_gate_that_is_switched_is_obeyed() -> None:
    assert {answers.gate_answers()[gate].kind for gate in switched_gates()} == {Kind.OBEYED}


def test_every_setting_of_the_agent_is_read_by_its_code() -> None:
    wanted = {f"{kind.__name__}.{name}" for kind, name, _ in bindings(Settings)}
    folders = [ROOT / "agent", ROOT / "cli", ROOT / "cni"]
    assert wanted - read_settings(set(dataclasses_of(Settings)), folders) == set()


def test_every_setting_of_the_proxy_is_read_by_its_code() -> None:
    wanted = {answer.where for name in PROGRAMS[1:] for answer in answers.field_answers(name).values() if answer.where}
    assert wanted - read_settings(set(dataclasses_of(ProxySettings)), [ROOT / "proxy"]) == set()


def test_the_page_is_what_facts_and_answers_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == compatibility_page(), "python -m controlplane.compatibility page"
    assert FEATURES.read_text(encoding="utf-8") == features_page(), "python -m controlplane.compatibility page"


def _is_test(name: str) -> bool:
    file, _, function = name.partition("::")
    return function in _tests(ROOT / file)


@cache
def _tests(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.exists() else ast.Module([], [])
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds) and node.name.startswith("test_"))


def test_a_setting_that_nobody_reads_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "def f(rules: RuleSettings, unit: Unit) -> None:\n    print(rules.masquerade_bit, unit.sync_period)\n"
    )
    kinds = set(dataclasses_of(ProxySettings))
    assert read_settings(kinds, [tmp_path]) == {"RuleSettings.masquerade_bit"}
