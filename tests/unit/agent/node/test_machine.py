"""What this machine says of itself; addresses by the kernel's own routing."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.node.edge.machine import Machine, addresses_towards, check_swap, swaps
from nodelib.errors import Permanent


def test_facts_are_plausible(tmp_path: Path) -> None:
    found = Machine(str(tmp_path / "not" / "there" / "yet")).facts()
    assert found.cpus > 0 and found.memory > 1 << 26 and found.storage > 1 << 20 and found.pids > 100
    assert found.boot_id and found.kernel_version and found.os_image
    assert found.architecture in ("amd64", "arm64", "arm", "386", "riscv64", "ppc64le", "s390x")


async def test_an_address_that_is_not_here_is_refused() -> None:
    with pytest.raises(Permanent, match=r"203\.0\.113\.77 is not an address of this machine"):
        await addresses_towards("https://127.0.0.1:6443", ("203.0.113.77",))


async def test_a_loopback_address_is_never_found() -> None:
    try:
        found = await addresses_towards("https://127.0.0.1:6443", ())
    except Permanent as error:
        assert "--node-ip" in str(error)
    else:
        assert not found[0].startswith("127.")


def test_swap_is_refused_only_when_asked() -> None:
    check_swap(False)
    if swaps():
        with pytest.raises(Permanent, match="failSwapOn"):
            check_swap(True)
    else:
        check_swap(True)
