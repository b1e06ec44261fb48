"""CPU and memory of a container as its cgroup has them, in the words of the spec where they mean the same."""

from __future__ import annotations

from agent.model import ContainerState, Json, RunState
from nodelib import quantity

_SHARES_PER_CPU = 1024
_MIN_SHARES = 2
_MAX_SHARES = 262144
_MIN_QUOTA = 1000  # microseconds


def cpu_shares(milli: int) -> int:
    """cpu.shares of a CPU request in thousandths (pkg/kubelet/cm MilliCPUToShares)."""
    if milli == 0:
        return _MIN_SHARES
    return min(max(milli * _SHARES_PER_CPU // 1000, _MIN_SHARES), _MAX_SHARES)


def cpu_quota(milli: int, period: int) -> int:
    """cfs quota in microseconds for a limit in thousandths of a CPU."""
    return max(milli * period // 1000, _MIN_QUOTA)


def shown_resources(wanted: Json, seen: ContainerState) -> Json:
    """`resources` of a ContainerStatus: what is wanted, corrected by what the runtime reports while it runs."""
    shown: Json = {key: dict(wanted[key]) for key in ("limits", "requests") if wanted.get(key)}
    if wanted.get("claims"):
        shown["claims"] = wanted["claims"]
    actual = seen.resources
    if seen.state is not RunState.RUNNING or not actual:
        return shown
    requests, limits = shown.get("requests", {}), shown.get("limits", {})
    if "cpu" in requests and actual.get("cpu_shares"):
        requests["cpu"] = _request(str(requests["cpu"]), int(actual["cpu_shares"]))
    if "cpu" in limits and actual.get("cpu_quota", 0) > 0 and actual.get("cpu_period"):
        limits["cpu"] = _limit(str(limits["cpu"]), int(actual["cpu_quota"]), int(actual["cpu_period"]))
    if "memory" in limits and actual.get("memory_limit_in_bytes", 0) > 0:
        size = int(actual["memory_limit_in_bytes"])
        if quantity.value(limits["memory"]) != size:
            limits["memory"] = quantity.format_bytes(size)
    return shown


def _request(text: str, shares: int) -> str:
    if cpu_shares(quantity.milli(text)) == shares:
        return text
    return quantity.format_milli(-(-shares * 1000 // _SHARES_PER_CPU))


def _limit(text: str, quota: int, period: int) -> str:
    if cpu_quota(quantity.milli(text), period) == quota:
        return text
    return quantity.format_milli(quota * 1000 // period)
