"""Checks of the CPU, memory and topology managers' fields, with upstream's messages.

Follows pkg/kubelet/apis/config/validation and what NewManager of each manager in pkg/kubelet/cm refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent.common.model.durations import seconds
from agent.managers.model.cpus import parse_cpus
from agent.managers.plan.checkpoint import go_map
from agent.managers.plan.options import BY_SOCKET, cpu_options, topology_options
from agent.settings import reserved_cpu
from nodelib import quantity
from nodelib.errors import Invalid

Flat = Mapping[str, Any]
_TOPOLOGIES = ("none", "best-effort", "restricted", "single-numa-node")


def with_reserved_cpus(config: Flat) -> dict[str, Any]:
    """reservedSystemCPUs replaces the cpu of systemReserved and kubeReserved (cmd/kubelet/app/server.go)."""
    chosen = parse_cpus(config["reservedSystemCPUs"])
    if not chosen:
        return dict(config)
    kube = {name: amount for name, amount in config["kubeReserved"].items() if name != "cpu"}
    return {**config, "kubeReserved": kube, "systemReserved": {**config["systemReserved"], "cpu": str(len(chosen))}}


def problems(config: Flat, on: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """(field path, problem) of everything that is wrong. `on`: see agent.config.rules.problems."""
    yield from _reserved(config)
    yield from _cpus(config, on)
    yield from _memory(config)
    yield from _topology(config)


def _reserved(config: Flat) -> Iterator[tuple[str, str]]:
    text = config["reservedSystemCPUs"]
    if text and (config["systemReservedCgroup"] or config["kubeReservedCgroup"]):
        yield (
            "reservedSystemCPUs",
            "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or "
            "kubeReservedCgroup (--kube-reserved-cgroup)",
        )
    try:
        parse_cpus(text)
    except Invalid as error:
        yield (
            "reservedSystemCPUs",
            f"unable to parse reservedSystemCPUs (--reserved-cpus) {text}, error: {error.message}",
        )


def _cpus(config: Flat, on: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    policy, options = config["cpuManagerPolicy"], config["cpuManagerPolicyOptions"]
    if policy not in ("none", "static"):
        yield "cpuManagerPolicy", f'unknown policy: "{policy}"; none and static are known'
    elif policy == "none" and options:
        yield "cpuManagerPolicyOptions", f"None policy: received unsupported options={go_map(options)}"
    elif policy == "static":
        try:
            cpu_options(options, on)
        except Invalid as error:
            yield "cpuManagerPolicyOptions", " ".join(part for part in (error.message, error.action) if part)
        try:
            if reserved_cpu(config["reservedSystemCPUs"], config["systemReserved"], config["kubeReserved"]) <= 0:
                yield (
                    "cpuManagerPolicy",
                    "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero; "
                    "set reservedSystemCPUs, systemReserved.cpu or kubeReserved.cpu",
                )
        except Invalid:
            return  # reported where the amount is configured
        if BY_SOCKET in options and config["topologyManagerPolicy"] == "single-numa-node":
            text = f"Topology manager single-numa-node policy is incompatible with CPUManager {BY_SOCKET} policy option"
            yield "cpuManagerPolicyOptions", text
    if seconds(config["cpuManagerReconcilePeriod"]) <= 0:
        yield "cpuManagerReconcilePeriod", "must be more than 0"


def _memory(config: Flat) -> Iterator[tuple[str, str]]:
    policy, seen = config["memoryManagerPolicy"], set[tuple[int, str]]()
    if policy == "BestEffort":
        yield "memoryManagerPolicy", f'policy "{policy}" is not available for platform "linux"'
    elif policy not in ("None", "Static"):
        yield "memoryManagerPolicy", f'unknown policy: "{policy}"; None and Static are known'
    for index, one in enumerate(config["reservedMemory"]):
        path, node = f"reservedMemory[{index}]", one["numaNode"]
        for kind, amount in one["limits"].items():
            if kind != "memory" and not kind.startswith("hugepages-"):
                text = f'the limit type "{kind}" for NUMA node {node} is not supported'
                yield path, f"{text}, only [memory hugepages-<HugePageSize>] is accepted"
            elif quantity.parse(amount) <= 0:
                yield path, f'reserved memory may not be zero for NUMA node {node} and resource "{kind}"'
            if (node, kind) in seen:
                text = f'has a duplicate value for NUMA node {node} and resource "{kind}"'
                yield path, f"the reserved memory {text}"
            seen.add((node, kind))


def _topology(config: Flat) -> Iterator[tuple[str, str]]:
    policy, scope = config["topologyManagerPolicy"], config["topologyManagerScope"]
    if policy not in _TOPOLOGIES:
        shown = " ".join(f'"{one}"' for one in _TOPOLOGIES)
        text = f'topologyManagerPolicy (--topology-manager-policy) "{policy}" must be one of: [{shown}]'
        yield "topologyManagerPolicy", text
    elif policy != "none":
        try:
            topology_options(config["topologyManagerPolicyOptions"])
        except Invalid as error:
            yield "topologyManagerPolicyOptions", error.message
    if scope not in ("container", "pod"):
        text = f'topologyManagerScope (--topology-manager-scope) "{scope}" must be one of: "container", or "pod"'
        yield "topologyManagerScope", text
