"""protectKernelDefaults: the six tunables of upstream's setupKernelTunables, checked or set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.node.edge.kernel_tunables import apply_tunables
from nodelib.errors import Permanent
from nodelib.kernel_tunables import KERNEL_TUNABLES


def tree(root: Path, **other: str) -> Path:
    """A /proc/sys with the wanted values, except `other` (dots as __)."""
    changed = {name.replace("__", "/"): value for name, value in other.items()}
    for name, value in {**{name: str(value) for name, value in KERNEL_TUNABLES.items()}, **changed}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return root


def test_they_are_upstream_s() -> None:
    assert KERNEL_TUNABLES == {
        "vm/overcommit_memory": 1,
        "vm/panic_on_oom": 0,
        "kernel/panic": 10,
        "kernel/panic_on_oops": 1,
        "kernel/keys/root_maxkeys": 1000000,
        "kernel/keys/root_maxbytes": 25000000,
    }


@pytest.mark.parametrize("name", sorted(KERNEL_TUNABLES))
def test_a_protected_default_that_differs_is_fatal_and_stays(tmp_path: Path, name: str) -> None:
    root = tree(tmp_path, **{name.replace("/", "__"): "7"})
    with pytest.raises(Permanent) as failed:
        apply_tunables(protect=True, root=str(root))
    text = str(failed.value)
    assert f"invalid kernel flag: {name}, expected value: {KERNEL_TUNABLES[name]}, actual value: 7" in text
    assert f"sysctl -w {name.replace('/', '.')}={KERNEL_TUNABLES[name]}" in text
    assert (root / name).read_text() == "7\n"


def test_all_that_differ_are_named_at_once(tmp_path: Path) -> None:
    root = tree(tmp_path, vm__overcommit_memory="0", kernel__panic="0")
    with pytest.raises(Permanent, match=r"vm/overcommit_memory.*kernel/panic,"):
        apply_tunables(protect=True, root=str(root))


def test_a_protected_default_that_cannot_be_read_is_fatal(tmp_path: Path) -> None:
    root = tree(tmp_path)
    (root / "vm/panic_on_oom").unlink()
    with pytest.raises(Permanent, match="vm/panic_on_oom"):
        apply_tunables(protect=True, root=str(root))


def test_without_protection_they_are_set(tmp_path: Path) -> None:
    root = tree(tmp_path, vm__overcommit_memory="0", kernel__panic="1", kernel__panic_on_oops="0")
    assert apply_tunables(protect=False, root=str(root)) == []
    assert {name: int((root / name).read_text()) for name in KERNEL_TUNABLES} == dict(KERNEL_TUNABLES)
    assert apply_tunables(protect=True, root=str(root)) == []


def test_one_that_cannot_be_set_is_named_and_the_rest_are_set(tmp_path: Path) -> None:
    """Upstream's kubelet does not start then; a container with a read-only /proc/sys can still run pods."""
    root = tree(tmp_path, kernel__panic="1")
    os.unlink(root / "vm/overcommit_memory")
    (root / "vm/overcommit_memory").mkdir()
    problems = apply_tunables(protect=False, root=str(root))
    assert len(problems) == 1 and "vm/overcommit_memory" in problems[0]
    assert (root / "kernel/panic").read_text().strip() == "10"
