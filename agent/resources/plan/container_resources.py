"""CPU and memory of a container as its cgroup has them, in the words of the spec where they mean the same."""

from __future__ import annotations

from agent.common.model.pods import ContainerState, Json, RunState
from agent.resources.plan import cgroups
from nodelib import quantity

_MIN_LIMIT = 10  # thousandths of a CPU: a smaller one makes the same quota


def shown_resources(wanted: Json, seen: ContainerState, in_force: Json | None = None) -> Json:
    """`resources` of a ContainerStatus: what is allocated, corrected by what the runtime reports while it runs.

    No cgroup knows a memory request: that one is as it was last put in force. Upstream:
    convertContainerStatusResources in pkg/kubelet/kubelet_pods.go.
    """
    shown: Json = {key: dict(wanted[key]) for key in ("limits", "requests") if wanted.get(key)}
    if wanted.get("claims"):
        shown["claims"] = wanted["claims"]
    actual = seen.resources
    if seen.state is not RunState.RUNNING or not actual:
        return shown
    if "requests" in shown:
        _correct_requests(shown["requests"], actual, (in_force or {}).get("requests") or {})
    if "limits" in shown:
        _correct_limits(shown["limits"], actual)
    return shown


def _correct_requests(requests: Json, actual: Json, in_force: Json) -> None:
    shares = int(actual.get("cpu_shares", 0))
    if shares and ("cpu" in requests or shares > cgroups.MIN_SHARES):
        requests["cpu"] = _request(str(requests.get("cpu", "0")), shares)
    memory = in_force.get("memory")
    if memory and quantity.value(memory) and quantity.value(requests.get("memory", 0)) != quantity.value(memory):
        requests["memory"] = memory


def _correct_limits(limits: Json, actual: Json) -> None:
    quota, period = int(actual.get("cpu_quota", 0)), int(actual.get("cpu_period", 0))
    if quota > 0 and period and ("cpu" in limits or quota * 1000 // period > _MIN_LIMIT):
        limits["cpu"] = _limit(str(limits.get("cpu", "0")), quota, period)
    size = int(actual.get("memory_limit_in_bytes", 0))
    if size > 0 and quantity.value(limits.get("memory", 0)) != size:
        limits["memory"] = quantity.format_bytes(size)


def _request(text: str, shares: int) -> str:
    if cgroups.shares(quantity.milli(text)) == shares:
        return text
    return quantity.format_milli(-(-shares * 1000 // cgroups.SHARES_PER_CPU))


def _limit(text: str, quota: int, period: int) -> str:
    # A limit of 0 is none where a cgroup is written; here there is a quota, and 0 stands for the least.
    if (cgroups.quota(quantity.milli(text), period) or cgroups.MIN_QUOTA) == quota:
        return text
    return quantity.format_milli(quota * 1000 // period)
