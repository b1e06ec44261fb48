"""What the page asks of others: the explanations of the commands, Events, and a way to one browser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from nodelib.json_values import Json
from view.model.network import Applied, Enforced, Refused, ServiceSaid, Traced, Wired
from view.model.nodes import NodeWork
from view.model.objects import Question, Stores
from view.model.pods import Cost, Why


class Answers(Protocol):
    """What `why`, `service` and `trace` say, and what the nodes themselves answer. Each may raise NodewrightError."""

    async def why(self, pod: Json, events: Sequence[Json], *, only_node: bool = False) -> Why:
        """`only_node`: nothing of it has changed since the last question, so the API server is not asked again."""
        ...

    async def costs(self, pod: Json) -> tuple[Cost, ...]:
        """By the pod's own node; none where it does not answer."""
        ...

    async def averages(self, node: str) -> Mapping[str, float]:
        """How long each kind of step takes on the node, in seconds."""
        ...

    async def service(self, service: Json, stores: Stores) -> ServiceSaid: ...

    async def node(self, name: str) -> NodeWork: ...

    async def wired(self, node: str, stores: Stores) -> Wired: ...

    async def policy(self, policy: Json, stores: Stores) -> Enforced:
        """Where a NetworkPolicy or ClusterNetworkPolicy is enforced."""
        ...

    def applied_to(
        self, pod: Json, policies: Iterable[Json], above: Iterable[Json], space: Json | None
    ) -> Sequence[Applied]:
        """Which NetworkPolicies of its namespace isolate the pod, and which ClusterNetworkPolicies (`above`) select it.

        `space`: its namespace, None where it is not known.
        """
        ...

    def news_of(self, name: str, on_change: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """`on_change` is called when a daemon of the node starts or ends."""
        ...

    async def trace(self, asked: Question, stores: Stores | None = None) -> Traced:
        """With `stores` only the kernels are read, and no object is asked for."""
        ...

    async def refused(self, taker: Refusals) -> None:
        """Tell of refused packets as they happen, until cancelled; returns where none can be told of."""
        ...


class Refusals(Protocol):
    """Gets refused packets, those of a flow that goes on again and again. Neither call may block."""

    def take(self, found: Sequence[Refused]) -> None: ...

    def problem(self, node: str, text: str) -> None:
        """Why the node tells of nothing, "" when it does again; `node` "": of all."""
        ...


class Feed(Protocol):
    """The Events of one object, as long as somebody looks at it."""

    def events(self) -> Sequence[Json]: ...


class Feeds(Protocol):
    """Opens such a watch; `on_change` is called at each news of it and must not block."""

    def about(self, obj: Json, on_change: Callable[[], None]) -> AbstractAsyncContextManager[Feed]: ...


class Wire(Protocol):
    """A connection to one browser. Raises Gone when it does not take what it is sent, or has left."""

    async def send(self, text: str) -> None: ...


class Gone(Exception):
    """The browser has left, or takes nothing any more."""
