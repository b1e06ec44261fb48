"""Advice as it works on this machine: the agents write `kubectl …` and know nothing of clusters' names. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace

from agent.explain.model import Explanation
from controlplane.cluster.advice import kubectl_line, line
from controlplane.cluster.model import DEFAULT_NAME

_COMMAND = re.compile(r"`(?:kubectl(?= )|nodewright (?P<ours>(?:addons|export|node|policy) [a-z]+|[a-z]+)(?=[ `]))")


@dataclass(frozen=True, slots=True)
class Wording:
    """`cluster`: the name of a cluster of `up`, "" on another machine.

    `kubeconfig`: what the user gave, "" for kubectl's own choice.
    """

    cluster: str = ""
    kubeconfig: str = ""

    def typed(self, advice: str) -> str:
        """The advice with commands that can be pasted."""
        return _COMMAND.sub(lambda found: f"`{self._command(found['ours'] or '')}", advice)

    def advised(self, found: Explanation) -> Explanation:
        """The explanation with such advice."""
        return replace(
            found,
            summary=self.typed(found.summary),
            waits=tuple(replace(one, action=self.typed(one.action)) for one in found.waits),
            costs=tuple(replace(one, action=self.typed(one.action)) for one in found.costs),
        )

    def _command(self, ours: str) -> str:
        if ours:
            return line(self.cluster or DEFAULT_NAME, *ours.split())
        if self.cluster:
            return kubectl_line(self.cluster)
        return f"kubectl --kubeconfig={shlex.quote(self.kubeconfig)}" if self.kubeconfig else "kubectl"
