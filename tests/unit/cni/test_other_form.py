"""The rules of the form that the node does not use (nftables beside iptables) are removed, where there can be any."""

from __future__ import annotations

from pathlib import Path

import pytest

from cni.firewall import remove_form
from nodelib.command import CommandError

_NOT_THERE = "/dev/stdin:1:1-24: Error: Could not process rule: Operation not supported"  # a kernel without nf_tables


def nft(folder: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    program = folder / "nft"
    program.write_text(f"#!/bin/sh\ncat >{folder}/input\necho '{says}' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


async def test_a_kernel_without_nftables_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look of each start failed there, and the node was NotReady until the next."""
    nft(tmp_path, monkeypatch, _NOT_THERE)
    await remove_form("nftables", "nodewright", "nw0")
    assert "delete table ip nodewright" in (tmp_path / "input").read_text()


async def test_rules_that_cannot_be_removed_are_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nft(tmp_path, monkeypatch, "Error: Could not process rule: Device or resource busy")
    with pytest.raises(CommandError, match="busy"):
        await remove_form("nftables", "nodewright", "nw0")
