"""Why containers wait, from one plan to the next."""

from __future__ import annotations

from collections.abc import Mapping

from agent.common.model.pods import Kind, Pod
from agent.common.model.states import Waiting
from agent.common.plan.restart import is_sidecar
from agent.pods.model.steps import EnsureImage, PodPlan, Start

CRASH_LOOP = "CrashLoopBackOff"


def waiting_now(plan: PodPlan, before: Mapping[str, Waiting]) -> dict[str, Waiting]:
    """By container name. A container that is being started shows why it last waited, until it runs."""
    starting = {step.container["name"] for step in plan.steps if isinstance(step, Start | EnsureImage)}
    return {**{name: why for name, why in before.items() if name in starting}, **plan.waiting}


def new_back_offs(plan: PodPlan, before: Mapping[str, Waiting]) -> list[str]:
    """Names of containers whose restart back-off has just begun."""
    return [name for name, why in plan.waiting.items() if why.reason == CRASH_LOOP and before.get(name) != why]


def back_off_message(name: str, pod: Pod) -> str:
    """The message of the BackOff event, in upstream's words."""
    return f"Back-off restarting failed container {name} in pod {pod.name}_{pod.namespace}({pod.uid})"


def probed(pod: Pod) -> list[str]:
    """Names of the containers that may have probes."""
    return [one["name"] for kind, one in pod.containers() if kind is Kind.MAIN or is_sidecar(kind, one)]
