"""Which other implementations of network policies are found, and by what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodelib import command
from nodelib.command import Completed
from policy.edge import others


@pytest.fixture(autouse=True)
def no_rules(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    chains = [""]

    async def run(argv: tuple[str, ...], **_: object) -> Completed:
        return Completed(argv, 0, chains[0].encode(), b"")

    monkeypatch.setattr(command, "run", run)
    return chains


def write(folder: Path, name: str, *plugins: str) -> None:
    (folder / name).write_text(json.dumps({"name": "n", "plugins": [{"type": one} for one in plugins]}))


async def test_the_first_configuration_counts(tmp_path: Path) -> None:
    write(tmp_path, "10-nodewright.conflist", "nodewright")
    write(tmp_path, "20-cilium.conflist", "cilium-cni")
    assert await others.find(str(tmp_path)) == ""
    write(tmp_path, "05-calico.conflist", "calico", "portmap")
    found = await others.find(str(tmp_path))
    assert "Calico" in found and "05-calico.conflist" in found


async def test_rules_of_those_that_stand_beside_any_plugin(tmp_path: Path, no_rules: list[str]) -> None:
    no_rules[0] = "table inet kube-network-policies {\n\tchain postrouting {\n"
    assert "kube-network-policies" in await others.find(str(tmp_path))
    no_rules[0] = "table ip nodewright-policy {\n\tchain KUBE-ROUTER-FORWARD-of-nobody {\n"
    assert await others.find(str(tmp_path)) == "", "only whole names count"


@pytest.mark.parametrize("text", ["", "[]", '{"plugins": 5}', '{"plugins": [5, {"type": []}]}', "x" * 100])
async def test_nonsense_is_no_implementation(tmp_path: Path, text: str) -> None:
    (tmp_path / "10-x.conflist").write_text(text)
    assert await others.find(str(tmp_path)) == ""
    assert await others.find(str(tmp_path / "missing")) == ""
