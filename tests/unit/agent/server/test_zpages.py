"""/statusz and /flagz: the choice of the form by the Accept header, and the contents."""

from __future__ import annotations

from typing import Any

import pytest

from agent.server.plan.zpages import Form, flagz, form_of, statusz


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Form()),
        ("*/*", Form()),
        ("text/plain", Form()),
        ("application/json;as=Statusz;g=config.k8s.io;v=v1beta1", Form("v1beta1")),
        ("application/json; v=v1alpha1; g=config.k8s.io; as=Statusz, text/plain", Form("v1alpha1")),
        ("application/yaml, text/plain", Form()),
        ("application/json", None),
        ("application/json;as=Flagz;g=config.k8s.io;v=v1beta1", None),
        ("application/json;as=Statusz;g=config.k8s.io;v=v2", None),
    ],
)
def test_the_first_supported_form_is_chosen(accept: str, expected: Form | None) -> None:
    assert form_of(accept, "Statusz") == expected


def test_statusz() -> None:
    facts: dict[str, Any] = {
        "started": 1_767_225_600.0,
        "now": 1_767_229_265.0,
        "version": "1.37.1",
        "language": "Python 3.11",
    }
    found = statusz(Form("v1beta1"), paths=["/pods", "/healthz"], **facts)
    assert found == {
        "kind": "Statusz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": {"name": "kubelet"},
        "startTime": "2026-01-01T00:00:00Z",
        "uptimeSeconds": 3665,
        "goVersion": "Python 3.11",
        "binaryVersion": "1.37.1",
        "emulationVersion": "1.37",
        "paths": ["/healthz", "/pods"],
    }
    text = statusz(Form(), paths=["/pods"], **facts)
    assert isinstance(text, str) and text.startswith("\nkubelet statusz\nWarning:")
    assert "Up: 1 hr 01 min 05 sec\n" in text and "Paths: /pods\n" in text


def test_flagz_lists_all_flags_in_order() -> None:
    assert str(flagz(Form(), {"v": "2", "config": "/x"})).endswith("\nconfig=/x\nv=2\n")
    found = flagz(Form("v1beta1"), {"v": "2"})
    assert isinstance(found, dict) and (found["kind"], found["flags"]) == ("Flagz", {"v": "2"})
