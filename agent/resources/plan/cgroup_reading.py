"""The limits of a pod's cgroup, parsed from its files (GetPodCgroupConfig of pkg/kubelet/cm)."""

from __future__ import annotations

from collections.abc import Mapping

from agent.resources.model import UNLIMITED_V1, Limits

V1_FILES = (
    ("cpu", "cpu.shares"),
    ("cpu", "cpu.cfs_quota_us"),
    ("cpu", "cpu.cfs_period_us"),
    ("memory", "memory.limit_in_bytes"),
)
V2_FILES = (("cpu", "cpu.max"), ("memory", "memory.max"))
USE_FILES = {1: "memory.usage_in_bytes", 2: "memory.current"}


def limits_read(version: int, texts: Mapping[str, str], shares: int | None) -> Limits:
    """`texts` by file name. `shares`: v2 has none, so these are the ones that its weight was computed from."""
    if version == 2:
        quota, _, period = texts.get("cpu.max", "max 100000").partition(" ")
        return Limits(
            cpu_shares=shares,
            cpu_quota=-1 if quota == "max" else int(quota),
            cpu_period=int(period or 100_000),
            memory=_memory(texts.get("memory.max", "max")),
        )
    return Limits(
        cpu_shares=int(texts["cpu.shares"]) if "cpu.shares" in texts else shares,
        cpu_quota=int(texts.get("cpu.cfs_quota_us", -1)),
        cpu_period=int(texts.get("cpu.cfs_period_us", 100_000)),
        memory=_memory(texts.get("memory.limit_in_bytes", "max")),
    )


def _memory(text: str) -> int:
    if text == "max":
        return 0
    size = int(text)
    return 0 if size >= UNLIMITED_V1 else size
