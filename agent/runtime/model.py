"""The container runtime: its state, its events, and its two CRI services as the agent calls them.

CRI configurations are plain dicts with the field names of runtime/v1 api.proto, so that plans can build them and stay
pure; edge/cri.py turns them into messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from agent.common.model.pods import ContainerState
from nodelib.addresses import parse_address


@dataclass(frozen=True, slots=True)
class RuntimeEvent:
    """A hint that something happened to a pod: ask for its state, do not trust the event itself.

    The exception is `ended`, a container that has exited: that cannot change any more.
    """

    uid: str
    container_id: str
    type: str
    ended: ContainerState | None = None


@dataclass(frozen=True, slots=True)
class RuntimeHandler:
    """A handler of the container runtime (RuntimeClass) and what it supports."""

    name: str
    recursive_read_only_mounts: bool = False
    user_namespaces: bool = False


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """The last answer of the container runtime. `problems`: why no pod can run now, in upstream's words."""

    name: str = "unknown"
    version: str = "Unknown"
    handlers: tuple[RuntimeHandler, ...] = ()
    supplemental_groups_policy: bool | None = None
    problems: tuple[str, ...] = ("container runtime status check may not have completed yet",)
    network_ready: bool = True  # until the runtime says otherwise


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Seconds (runtimeRequestTimeout): of most calls, twice that of one that makes a sandbox."""

    call: float = 120.0

    @property
    def sandbox(self) -> float:
        return 2 * self.call

    @property
    def image(self) -> float:
        """Of questions about images, for which upstream has none: a disk may take long."""
        return max(self.call, 120.0)

    @property
    def start(self) -> float:
        """Of what an agent that starts waits for."""
        return min(self.call, 3.0)


def pod_ips(listed: Iterable[str]) -> tuple[str, ...]:
    """The addresses of a pod: the first of each family, as upstream's sortPodIPs and determinePodSandboxIPs have it.

    The runtime shows all that the CNI plugins of a sandbox answered with. The API server takes one of each family: with
    more in it, the whole status is refused, and the pod is never ready.
    """
    found: dict[int, str] = {}
    for text in listed:
        with suppress(ValueError):
            found.setdefault(parse_address(text).version, text)
    return tuple(found.values())
