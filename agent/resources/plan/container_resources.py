"""CPU and memory of a container for its status, from its cgroup but written as in the spec where that is the same."""

from __future__ import annotations

from agent.common.model.pods import ContainerState, RunState
from agent.resources.plan import cgroups
from nodelib import quantity
from nodelib.json_values import Json

_MIN_LIMIT = 10  # thousandths of a CPU; smaller limits give the same quota


def shown_resources(wanted: Json, seen: ContainerState, in_force: Json | None = None) -> Json:
    """`resources` of a ContainerStatus: the allocated ones, corrected by what the runtime reports while it runs.

    Cgroups have no memory request, so the one last put in force is shown. Upstream: convertContainerStatusResources in
    pkg/kubelet/kubelet_pods.go.
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
    # A limit of 0 means no quota when a cgroup is written. Here there is a quota, so 0 stands for the least one.
    if (cgroups.quota(quantity.milli(text), period) or cgroups.MIN_QUOTA) == quota:
        return text
    return quantity.format_milli(quota * 1000 // period)
