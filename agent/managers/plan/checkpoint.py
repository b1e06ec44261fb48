"""The text of cpu_manager_state, as upstream's kubelet writes and reads it.

Follows pkg/kubelet/cm/cpumanager/state/checkpoint.go: version 4 in `data` with its own checksum, and beside it
version 2 for kubelets before 1.37, whose checksum is that of Go's dump of the struct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from agent.managers.model.cpus import Cpus, format_cpus, parse_cpus
from agent.managers.plan.cpus import CpuPolicy, CpuState, checked
from agent.resources.plan.checkpoint import checksum
from nodelib.errors import Invalid
from nodelib.fnv import fnv1a
from nodelib.json_values import Json, compact
from nodelib.json_values import decode as decode_json

CPU_FILE = "cpu_manager_state"
STATIC, NONE = "static", "none"

T = TypeVar("T")


def encode_cpus(state: CpuState, policy: str = STATIC) -> str:
    """The whole file."""
    entries: dict[str, dict[str, str]] = {}
    for (uid, container), cpus in sorted(state.assignments.items()):
        entries.setdefault(uid, {})[container] = format_cpus(cpus)
    shown: Json = {"policyName": policy, "defaultCpuSet": format_cpus(state.shared)}
    if entries:
        shown["entries"] = entries
    data = compact(shown)
    old = {**shown, "checksum": _dump_sum(shown, "")}
    return compact({**old, "data": data, "dataChecksum": checksum(data)})


def decode_cpus(text: str, policy: str = STATIC) -> CpuState:
    """Raises Invalid for a corrupted file or one of another policy."""
    return decoded(text, policy, _old_sums, _state)


def _state(found: Json) -> CpuState:
    assignments = {
        (str(uid), str(container)): _cpus(cpus, f'cpuset "{cpus}" for container "{container}" in pod "{uid}"')
        for uid, listed in (found.get("entries") or {}).items()
        for container, cpus in listed.items()
    }
    default = found.get("defaultCpuSet") or ""
    return CpuState(_cpus(default, f'default CPU set "{default}"'), assignments)


def restored_cpus(policy: CpuPolicy | None, text: str | None) -> CpuState:
    """The state in the file of an earlier agent (None: there is no file). Raises Invalid when it cannot be used."""
    if policy is not None:
        return checked(policy, decode_cpus(text) if text is not None else CpuState())
    if text is not None:
        decode_cpus(text, NONE)
    return CpuState()


def decoded(text: str, policy: str, old_sums: Callable[[Json], tuple[int, int]], read: Callable[[Json], T]) -> T:
    """The file of either manager, parsed by `read`; `old_sums`: the checksums that a file without `data` may have.

    Raises Invalid for a corrupted file or one of another policy.
    """
    try:
        found = _content(text, old_sums)
        if found.get("policyName") != policy:
            stored = found.get("policyName")
            raise Invalid(f'configured policy "{policy}" differs from state checkpoint policy "{stored}"')
        return read(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"this is not a checkpoint: {type(error).__name__}: {error}") from error


def _content(text: str, old_sums: Callable[[Json], tuple[int, int]]) -> Json:
    outer = decode_json(text)
    if outer.get("data") or outer.get("dataChecksum"):
        if checksum(str(outer.get("data"))) != outer.get("dataChecksum"):
            raise Invalid("checkpoint is corrupted")
        inner: Json = decode_json(outer["data"])
        return inner
    if outer.get("checksum") not in (0, *old_sums(outer)):
        raise Invalid("checkpoint is corrupted")
    found: Json = outer
    return found


def go_map(items: Mapping[Any, str]) -> str:
    """A map as Go prints it: sorted, without quotes."""
    return "map[" + " ".join(f"{key}:{text}" for key, text in sorted(items.items())) + "]"


def _old_sums(outer: Json) -> tuple[int, int]:
    """The checksums of versions 2 and 3."""
    return _dump_sum(outer, ""), _dump_sum(outer, " PodEntries:(state.PodCPUAssignments)map[]")


def _dump_sum(shown: Json, more: str) -> int:
    pods = {uid: go_map(listed) for uid, listed in (shown.get("entries") or {}).items()}
    text = (
        f"(*state.CPUManagerCheckpoint){{PolicyName:(string){shown['policyName']} "
        f"DefaultCPUSet:(string){shown['defaultCpuSet']} Entries:(map[string]map[string]string){go_map(pods)}"
        f"{more} Checksum:(checksum.Checksum)0}}"
    )
    return fnv1a(text.encode())


def _cpus(text: str, what: str) -> Cpus:
    try:
        return parse_cpus(text)
    except Invalid as error:
        raise Invalid(f"could not parse {what}: {error.message}") from error
