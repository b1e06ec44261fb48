"""The DRA manager: claims are prepared before the sandbox of a pod is created, and unprepared after their last pod.

The checkpoint is written before a driver is called, so that the claim can be unprepared after a restart as well. One
task at a time works on a claim: a driver that does not answer holds the pods of its own claims (upstream's manager
holds none either, but calls a driver once for all claims of a pod).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from agent.common.model.pods import Pod
from agent.common.ports import CheckpointStore
from agent.common.work.jobs import Jobs
from agent.devices.model.devices import DeviceGrant
from agent.devices.model.dra import ClaimRef, ClaimState
from agent.devices.model.dra_health import DeviceKey
from agent.devices.plan import dra as plan
from agent.devices.plan import dra_health as health
from agent.devices.work.dra_drivers import Dial, DraDrivers, Slices
from agent.devices.work.dra_health import DraHealth
from nodelib.clock import Clock
from nodelib.errors import Invalid, NodewrightError, NotFound, Temporary
from nodelib.json_values import Json
from nodelib.key_locks import KeyLocks

log = logging.getLogger(__name__)

ClaimKey = tuple[str, str]
"""Namespace and name of a ResourceClaim."""

_RECONCILE = 60.0  # seconds; upstream's defaultReconcilePeriod


class Claims(Slices, Protocol):
    """devices/edge/dra_objects.py. Every call raises ApiError."""

    async def claim(self, namespace: str, name: str) -> Json | None: ...


@dataclass(frozen=True, slots=True)
class DraManagerDeps:
    """What the DRA manager works with.

    `known()`: UIDs of all pods that should run or are terminating, None while not all are known; `registered()` is
    called when a driver has registered, `changed(uid)` when the health of a device of that pod has changed.
    `health_messages`: whether statuses show what drivers say of it. `timed(operation)` times what is done for all
    claims of a pod. `has_api`: there is an API server.
    """

    files: CheckpointStore
    claims: Claims
    dial: Dial
    clock: Clock
    known: Callable[[], Collection[str] | None]
    registered: Callable[[], None]
    changed: Callable[[str], None] = lambda uid: None
    health_messages: bool = True
    timed: Callable[[str], AbstractContextManager[None]] = lambda operation: nullcontext()
    has_api: bool = True

    @property
    def slices(self) -> Slices | None:
        return self.claims if self.has_api else None


class DraManager:
    """Call load() first; run() is long-lived. `drivers`: whom it asks; they have a task of their own."""

    def __init__(self, deps: DraManagerDeps) -> None:
        self._deps = deps
        self._states: dict[ClaimKey, ClaimState] = {}
        self._locks = KeyLocks[ClaimKey]()
        self._saving, self._texts = asyncio.Lock(), plan.Texts()
        self._releases = Jobs()
        self._health = DraHealth(deps.clock, self._health_changed)
        self.drivers = DraDrivers(deps.dial, deps.slices, deps.clock, deps.registered, self._health)

    @property
    def states(self) -> Collection[ClaimState]:
        return self._states.values()

    async def load(self) -> None:
        """Read the checkpoint. Raises Temporary."""
        text = await self._deps.files.read(plan.CHECKPOINT)
        try:
            self._states = plan.decode(text) if text is not None else {}
        except Invalid as error:
            kept = await self._deps.files.set_aside(plan.CHECKPOINT)
            log.warning("%s cannot be used (kept as %s): %s", plan.CHECKPOINT, kept, error)

    async def run_health(self) -> None:
        """Until cancelled: listen to the health of devices."""
        await self._health.run()

    async def run(self) -> None:
        """Until cancelled: unprepare the claims of pods that disappeared unnoticed."""
        try:
            while True:
                await self._deps.clock.sleep(_RECONCILE)
                known = self._deps.known()
                if known is not None:
                    for uid in {uid for state in self.states for uid in state.pods} - set(known):
                        self._releases.start(uid, partial(self._release_quietly, uid))
        finally:
            await self._releases.close()

    # --- pods

    async def prepare(self, pod: Pod) -> None:
        """Prepare all claims of the pod; idempotent. Raises NodewrightError.

        Nothing is recorded before all drivers that it needs are there: a pod whose driver never comes can go.
        """
        with self._deps.timed("PrepareResources"):
            await self._prepare_all(pod)

    async def _prepare_all(self, pod: Pod) -> None:
        wanted = plan.claims_to_prepare(pod).items()
        claims = [await self._usable(pod, name, from_template) for name, from_template in wanted]
        for usable in claims:
            known = self._states.get(_key(usable.ref))
            if known is None or not known.prepared:
                for name in usable.drivers:
                    self.drivers.get(name)
        for usable in claims:
            async with self._locks.of(_key(usable.ref)):
                await self._prepare_for(usable)

    def grant(self, pod: Pod, container: Json) -> DeviceGrant:
        """The CDI devices that the container's claims give it."""
        return plan.grant(pod, container, self.states)

    def health(self, pod: Pod) -> Mapping[str, list[Json]]:
        """allocatedResourcesStatus of the pod's claims by container name."""
        return health.health_status(pod, self.states, self._health.known, messages=self._deps.health_messages)

    async def release(self, uid: str) -> None:
        """The pod is gone: unprepare claims that no other pod uses; idempotent. Raises NodewrightError."""
        with self._deps.timed("UnprepareResources"):
            await self._release_all(uid)

    async def _release_all(self, uid: str) -> None:
        mine = [key for key, state in self._states.items() if uid in state.pods]
        ends = await asyncio.gather(*(self._release_claim(key, uid) for key in mine), return_exceptions=True)
        for failed in (end for end in ends if end is not None):
            raise failed

    async def _release_claim(self, key: ClaimKey, uid: str) -> None:
        async with self._locks.of(key):
            state = self._states.get(key)
            if state is None or uid not in state.pods:
                return
            if state.pods == {uid}:
                await self._unprepare(state)
                del self._states[key]
            else:
                self._states[key] = replace(state, pods=state.pods - {uid})
            await self._save()

    async def _usable(self, pod: Pod, name: str, from_template: bool) -> ClaimState:
        claim = await self._deps.claims.claim(pod.namespace, name)
        if claim is None:
            raise NotFound(f"ResourceClaim {name} does not exist", obj=f"pod {pod.full_name}", action="Create it.")
        return plan.usable(pod, claim, from_template=from_template)

    async def _prepare_for(self, usable: ClaimState) -> None:
        """Record the pod with its claim, then prepare that; `usable`: the claim as this pod uses it.

        A claim for which no driver has devices needs nothing done, neither now nor when the pod ends. Whoever may make
        claims can have any number of those, and each record makes the checkpoint longer, which is written whole.
        """
        key = _key(usable.ref)
        if not usable.drivers and key not in self._states:
            return
        fresh = plan.with_pod(self._states.get(key), usable)
        if self._states.get(key) != fresh:
            self._states[key] = fresh
            await self._save()
        if not fresh.prepared:
            self._states[key] = await self._prepare(fresh)
            await self._save()

    async def _prepare(self, state: ClaimState) -> ClaimState:
        devices = []
        for name in state.drivers:
            answers = await self.drivers.get(name).prepare([state.ref])
            if state.ref.uid not in answers:
                raise Temporary(
                    f"NodePrepareResources skipped ResourceClaim {state.ref.name}", obj=f"DRA driver {name}"
                )
            devices += plan.prepared_devices(name, answers[state.ref.uid])
        return replace(state, prepared=True, devices=tuple(devices))

    async def _unprepare(self, state: ClaimState) -> None:
        for name in state.drivers:
            answers = await self.drivers.get(name).unprepare([state.ref])
            error = answers.get(state.ref.uid, {"error": "the driver did not answer for it"}).get("error")
            if error:
                raise Temporary(
                    f"NodeUnprepareResources of ResourceClaim {state.ref.name}: {error}", obj=f"DRA driver {name}"
                )

    def _health_changed(self, driver: str, devices: frozenset[DeviceKey]) -> None:
        for uid in health.users_of(self.states, driver, devices):
            self._deps.changed(uid)

    async def _release_quietly(self, uid: str) -> None:
        try:
            await self.release(uid)
        except NodewrightError as error:
            log.warning("the claims of pod %s stay prepared for now: %s", uid, error)

    async def _save(self) -> None:
        async with self._saving:  # an older text must not be written last
            await self._deps.files.write(plan.CHECKPOINT, plan.encode(self.states, self._texts))


def _key(ref: ClaimRef) -> ClaimKey:
    return ref.namespace, ref.name
