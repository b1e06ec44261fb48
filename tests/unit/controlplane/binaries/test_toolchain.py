"""The environment in which Go builds."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from controlplane.binaries.edge import toolchain
from controlplane.binaries.edge.toolchain import build_environment
from nodelib.errors import Permanent


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


def test_without_go_and_without_a_way_to_get_it_it_says_what_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "MINIMUM", (99, 0))
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(Permanent) as caught:
        toolchain.find_go(tmp_path, print, "traefik")
    assert "to build traefik" in str(caught.value) and "PIP_INDEX_URL" in caught.value.action
