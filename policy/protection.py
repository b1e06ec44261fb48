"""Answers the pod network's question for a new pod: from which moment on is it protected.

The pod network asks in ADD, when the pod's address is known and before any of its containers starts, and fails ADD if
the answer is not yes. So no pod ever runs without its policies, whatever happens to this daemon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.traces.steps import step
from policy.enforcer import Enforcer, not_protected
from policy.model import Address, Name
from policy.plan import parse

log = logging.getLogger(__name__)

LIMIT = 5.0  # seconds for one question; the asker waits a little longer

Held = dict[Name, tuple[str, tuple[Address, ...]]]


class HeldFile(Protocol):
    """Remembers addresses across a kill of this process."""

    def save(self, held: Held) -> None: ...


class Protection:
    """`off`: why nothing is enforced here, "" if it is; then every pod may run."""

    def __init__(self, enforcer: Enforcer, file: HeldFile, held: Held, off: Callable[[], str]) -> None:
        self._enforcer, self._file, self._off = enforcer, file, off
        self._held: Held = {}
        for name, (uid, addresses) in held.items():
            self._remember(name, uid, addresses)

    def forget(self, name: Name) -> None:
        """The pod is gone."""
        if self._held.pop(name, None) is not None:
            self._file.save(self._held)

    def forget_unknown(self) -> None:
        """Everything has been listed: what is not in the API went while this daemon was not there."""
        for name in [one for one, (uid, _) in self._held.items() if not self._enforcer.knows(one, uid)]:
            if not self._enforcer.knows(name, ""):
                self._enforcer.set_pod(name, None)
            self.forget(name)

    async def answer(self, question: Json) -> Json:
        """{"protected": true}, or why not and what to do. Never raises."""
        try:
            name, uid, addresses = read(question)
            if not self._off():
                await self._protect(name, uid, addresses)
        except NodewrightError as error:
            log.warning("%s", error)
            return {"protected": False, "error": error.message, "step": error.step, "action": error.action}
        return {"protected": True}

    async def _protect(self, name: Name, uid: str, addresses: tuple[Address, ...]) -> None:
        try:
            async with asyncio.timeout(LIMIT):
                with step("see the pod in the API"):
                    await self._enforcer.known(name, uid)
                number = self._remember(name, uid, addresses)
                # Before the answer: after a kill the next process must not take the pod's address for nobody's.
                self._file.save(self._held)
                with step("wait for the sync"):
                    await self._enforcer.written(number)
        except TimeoutError as error:
            raise self._late(name, uid) from error

    def _remember(self, name: Name, uid: str, addresses: tuple[Address, ...]) -> int:
        self._held[name] = (uid, addresses)
        return self._enforcer.hold(name, uid, addresses)

    def _late(self, name: Name, uid: str) -> NodewrightError:
        step = "put its network policies in force"
        if self._enforcer.last_error:
            return not_protected(name, step, self._enforcer.last_error, "See the log of the node's policy daemon.")
        if not self._enforcer.knows(name, uid):
            why = f"the policy daemon has not seen this pod in the API within {LIMIT:g} s"
            return not_protected(name, step, why, "Is the API server reachable? The pod is tried again.")
        return not_protected(name, step, f"not done within {LIMIT:g} s", "Is the node overloaded? It is tried again.")


def read(question: Json) -> tuple[Name, str, tuple[Address, ...]]:
    """The pod of a question, its UID and its addresses."""
    name = Name(str(question.get("namespace", ""))[:253], str(question.get("name", ""))[:253])
    return name, str(question.get("uid", ""))[:253], parse.addresses(question.get("addresses"))
