"""The environment in which Go builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.binaries.edge.toolchain import build_environment


def test_proxies_and_trust_are_the_machines_and_flags_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = {
        "GOPROXY": "https://proxy.example",
        "GOSUMDB": "off",
        "GONOSUMDB": "x.example",
        "HTTPS_PROXY": "http://p",
    }
    for name, value in {**machine, "GOFLAGS": "-mod=vendor", "GOCACHE": "/own", "GOWORK": "/w", "GOGC": "50"}.items():
        monkeypatch.setenv(name, value)
    found = build_environment(Path("/opt/go/bin/go"), {"GOCACHE": "/ours"})
    assert {name: found[name] for name in machine} == machine
    assert found["GOCACHE"] == "/ours"
    assert (found["GOWORK"], found["GOTOOLCHAIN"], found["CGO_ENABLED"]) == ("off", "local", "0")
    assert "-mod=vendor" not in found["GOFLAGS"]
    assert found["GOGC"] == "50"
    assert found["PATH"].startswith("/opt/go/bin:")
