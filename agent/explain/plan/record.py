"""What the node knows of one pod: the input of explain()."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.common.model.pods import ObservedPod, Pod
from agent.explain.plan.remedies import Subject, action_for
from agent.images.model.pulls import PullProgress, UnreadSecret
from agent.pods.model.facts import Facts
from agent.pods.model.steps import PodPlan
from agent.pods.model.timeline import TimelineEntry
from agent.probes.model import ProbeAnswer
from nodelib.json_values import Json


@dataclass(frozen=True, slots=True)
class Record:
    """All that the node knows of one pod at `facts.now`.

    `node_problems` is what the runtime says the node lacks. `refused_for` says what a refused pod asked for and what
    was free; `unread_secrets`, which pull secrets cannot be used; `limited`, why the pod may begin few connections.
    """

    node: str
    pod: Pod
    status: Json
    seen: ObservedPod
    facts: Facts
    plan: PodPlan = field(default_factory=PodPlan)
    pulls: Mapping[str, PullProgress] = field(default_factory=dict)
    unread_secrets: tuple[UnreadSecret, ...] = ()
    probes: tuple[ProbeAnswer, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    under_way: tuple[TimelineEntry, ...] = ()
    node_problems: tuple[str, ...] = ()
    refused_for: str = ""
    limited: str = ""

    def action(self, reason: str, error: str, container: str = "", pull_policy: str = "") -> str:
        """What a user can do about it; "" when the error says it already."""
        about = Subject(self.pod.namespace, self.pod.name, container, pull_policy, self.unread_secrets)
        return action_for(reason, error, about)
