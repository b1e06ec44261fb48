"""Advice as it works on this machine: the agents write `kubectl …` and know nothing of clusters' names. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_COMMAND = re.compile(r"`(?:kubectl(?= )|nodewright (?P<ours>[a-z]+)(?=[ `]))")


@dataclass(frozen=True, slots=True)
class Wording:
    """`cluster`: the name of a cluster of `up`, "" on another machine; `usual`: the name that needs no --name.

    `kubeconfig`: what the user gave, "" for kubectl's own choice.
    """

    cluster: str = ""
    usual: str = ""
    kubeconfig: str = ""

    def typed(self, advice: str) -> str:
        """The advice with commands that can be pasted."""
        return _COMMAND.sub(lambda found: f"`{self._command(found['ours'] or '')}", advice)

    def _command(self, ours: str) -> str:
        if ours:
            return f"./nodewright {ours}{self._name()}"
        if self.cluster:
            return f"./nodewright kubectl{self._name()} --"
        return f"kubectl --kubeconfig={shlex.quote(self.kubeconfig)}" if self.kubeconfig else "kubectl"

    def _name(self) -> str:
        return f" --name {self.cluster}" if self.cluster and self.cluster != self.usual else ""
