"""Debian packages that an installed `up` needs: which are missing, and what becomes of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.project import PROJECT
from controlplane.doctor.work import debian_packages
from controlplane.machine.edge import debian
from controlplane.machine.edge.compiler import COMPILER_PACKAGES
from controlplane.progress import Say
from nodelib.errors import Permanent

DPKG = '#!/bin/sh\nshift 3\nfor name; do grep -qx "$name" "$STATE/there" && echo "$name installed"; done\nexit 1\n'
APT = """#!/bin/sh
echo "$*" >>"$STATE/apt"
case $* in
  *install*) [ -e "$STATE/updated" ] || exit 100; for name; do :; done; echo "$name" >>"$STATE/there" ;;
  *update*) [ ! -e "$STATE/offline" ] || { echo 'E: Could not resolve host' >&2; exit 100; }; touch "$STATE/updated" ;;
esac
"""


class Steps:
    def __init__(self) -> None:
        self.said: list[str] = []

    @contextmanager
    def step(self, title: str) -> Iterator[Say]:
        yield self.said.append


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with dpkg and apt that know of iptables only; its package lists are too old."""
    for name, text in (("dpkg-query", DPKG), ("apt-get", APT)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "there").write_text("iptables\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("STATE", str(tmp_path))
    return tmp_path


def test_what_is_missing_is_installed_and_noted(machine: Path) -> None:
    steps = Steps()
    debian.install_missing(["iptables", "runc"], steps, machine / "cache" / "debian-packages")
    assert debian.missing(["iptables", "runc"]) == []
    assert (machine / "cache" / "debian-packages").read_text() == "runc\n"
    assert (machine / "apt").read_text().splitlines()[-1].endswith("install --no-install-recommends runc")
    assert steps.said[0] == "installing runc" and steps.said[-1] == "1 installed"


def test_nothing_is_asked_of_apt_when_all_are_there(machine: Path) -> None:
    debian.install_missing(["iptables"], Steps(), machine / "record")
    assert not (machine / "apt").exists() and not (machine / "record").exists()


def test_an_apt_that_cannot_is_an_error_with_its_words(machine: Path) -> None:
    (machine / "offline").touch()
    with pytest.raises(Permanent, match="Could not resolve host") as refusal:
        debian.install_missing(["runc"], Steps(), machine / "record")
    assert "apt-get install runc" in refusal.value.action and not (machine / "record").exists()


def test_no_compiler_is_needed_without_building() -> None:
    needed = debian_packages(str(PROJECT))
    assert {"iptables", "nftables"} <= set(needed)
    assert not set(COMPILER_PACKAGES) & set(needed)
    listed = [line.split() for line in (PROJECT / "controlplane/packages.txt").read_text().splitlines()]
    assert {words[0] for words in listed if words[1:] == ["build"]} == set(COMPILER_PACKAGES)
