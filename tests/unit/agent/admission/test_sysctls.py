"""Which sysctls a pod may set."""

from __future__ import annotations

from typing import Any

import pytest

from agent.admission.plan.sysctls import kernel_version, refused, safe_sysctls
from tests.builders.pods import pod


def check(*names: str, allowed: tuple[str, ...] = (), kernel: tuple[int, int] = (6, 1), **spec: Any) -> str:
    context = {"sysctls": [{"name": name, "value": "1"} for name in names]}
    return refused(pod(securityContext=context, **spec), kernel, allowed)


@pytest.mark.parametrize(
    ("names", "allowed", "spec", "said"),
    [
        pytest.param([], (), {}, "", id="none"),
        pytest.param(["kernel.shm_rmid_forced"], (), {}, "", id="safe"),
        pytest.param(["net/ipv4/tcp_syncookies"], (), {}, "", id="slashes"),
        pytest.param(["kernel.msgmax"], (), {}, '"kernel.msgmax" not allowlisted', id="unsafe"),
        pytest.param(["kernel.msgmax"], ("kernel.msg*",), {}, "", id="allowed by pattern"),
        pytest.param(["kernel.msgmax"], ("kernel.msgmax",), {}, "", id="allowed by name"),
        pytest.param(["net.ipv4.tcp_syncookies"], (), {"hostNetwork": True}, "host Net enabled", id="host network"),
        pytest.param(["kernel.shm_rmid_forced"], (), {"hostIPC": True}, "host IPC enabled", id="host IPC"),
        pytest.param(["user.max_x"], ("user.*",), {}, "host User enabled", id="host users"),
        pytest.param(["user.max_x"], ("user.*",), {"hostUsers": False}, "", id="own users"),
    ],
)
def test_refused(names: list[str], allowed: tuple[str, ...], spec: dict[str, Any], said: str) -> None:
    found = check(*names, allowed=allowed, **spec)
    assert (said in found) if said else found == ""


def test_old_kernels_have_fewer() -> None:
    assert "net.ipv4.tcp_rmem" not in safe_sysctls((4, 14))
    assert "net.ipv4.tcp_rmem" in safe_sysctls((4, 15))
    assert check("net.ipv4.tcp_rmem", kernel=(4, 14)) != ""


@pytest.mark.parametrize(
    ("release", "version"),
    [("6.18.0-rc1-amd64", (6, 18)), ("4.19", (4, 19)), ("unknown", (0, 0)), ("", (0, 0))],
)
def test_kernel_version(release: str, version: tuple[int, int]) -> None:
    assert kernel_version(release) == version
