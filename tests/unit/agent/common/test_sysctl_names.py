"""Names of sysctls, and whose they are."""

from __future__ import annotations

import pytest

from agent.common.plan.sysctl_names import namespace_of, normalized


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kernel.shm", "kernel.shm"),
        ("kernel/shm", "kernel.shm"),
        ("net/ipv4/conf/eno2.100/rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
        ("net.ipv4.conf.eno2/100.rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
    ],
)
def test_normalized(name: str, expected: str) -> None:
    assert normalized(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("net.core.somaxconn", "Net"),
        ("kernel.shmmax", "IPC"),
        ("fs.mqueue.msg_max", "IPC"),
        ("kernel.domainname", "UTS"),
        ("user.max_inotify_watches", "User"),
        ("kernel.pid_max", ""),
        ("network.x", ""),
    ],
)
def test_namespaces(name: str, expected: str) -> None:
    assert namespace_of(name) == expected
