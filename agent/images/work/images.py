"""The image manager: makes sure that images are present before containers start, with pulls and back-off.

Pulls do not block other work of their pod. At most `parallel` of them run at once on the node, and of those that wait,
the one whose pod has the highest priority is next; of equals, the namespaces take turns. Every change is reported to
the pod's worker by `on_state`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field

from agent.common.metrics import Metrics, image_size_class
from agent.common.model.errors import CriError, CriUnavailable
from agent.common.model.pods import ImageFacts, Pod
from agent.common.model.states import BackOff, BackOffBounds, ImagePhase, ImageState, Waiting
from agent.common.plan import backoff
from agent.common.ports import Events
from agent.common.work.gate import Gate
from agent.images.model.pulls import PullCredential, PullProgress
from agent.images.plan.images import (
    PullDecision,
    Wanted,
    asks_for_local,
    is_too_large,
    pull_backed_off,
    pull_decision,
    pull_failure,
    unusable,
    with_default_tag,
)
from agent.images.work.pull_credentials import Secrets
from agent.images.work.pull_progress import PullWatcher
from agent.images.work.pull_records import PullRecords
from agent.images.work.pull_secrets import UnreadSecrets
from agent.runtime.ports import ImageService
from nodelib.clock import Clock
from nodelib.errors import Invalid, NodewrightError, Temporary
from nodelib.rate_limiter import TokenBucket
from nodelib.tasks import cancel_and_wait

log = logging.getLogger(__name__)

OnState = Callable[[str, ImageState], None]
OnPulled = Callable[[str, float, float], None]
"""Pod UID, and when its pull began and ended (wall seconds), failed or not."""
_BACKOFFS_KEPT = 16  # of a pod, beside those of the images that it names
_SLOWER = "It is tried again; registryPullQPS and registryBurst of the node allow more."
_LONGEST = 60.0  # seconds that a pull counts as one of those that run at once
_REFRESH_LIMIT = 1.0  # seconds; the commands that ask for progress wait for three


@dataclass(frozen=True, slots=True)
class ImageManagerDeps:
    """What the image manager works with. `watch` None: the progress of pulls is not followed."""

    images: ImageService
    credentials: Secrets
    events: Events
    clock: Clock
    records: PullRecords
    metrics: Metrics
    on_pulled: OnPulled
    watch: PullWatcher | None = None
    unread_secrets: UnreadSecrets = field(default_factory=UnreadSecrets)


class ImageManager:
    """One for the node. `parallel`: how many pulls may run at once; `refresh_limit` in seconds. A pull that takes
    `longest` seconds lets another begin: a registry may send a byte a minute for as long as it likes, and the pods of
    others would wait (upstream's do).

    `rate`: a pull for which it has no token fails and is backed off (throttleImagePulling); None: each may begin.
    """

    def __init__(
        self,
        deps: ImageManagerDeps,
        parallel: int = 5,
        refresh_limit: float = _REFRESH_LIMIT,
        rate: TokenBucket | None = None,
        longest: float = _LONGEST,
    ) -> None:
        self._refresh_limit, self._rate = refresh_limit, rate
        self._images, self._credentials, self._events = deps.images, deps.credentials, deps.events
        self._clock, self._records, self._watch = deps.clock, deps.records, deps.watch
        self._metrics, self._on_pulled = deps.metrics, deps.on_pulled
        self.unread_secrets = deps.unread_secrets  # of pods whose images cannot be pulled, perhaps for that
        self._slots = Gate(parallel, longest)
        self._backoff: dict[str, dict[str, tuple[BackOff, Waiting]]] = {}  # by pod UID and image
        self._pulls: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._looks: set[asyncio.Task[None]] = set()  # at what came of pulls that were cut off

    async def ensure(self, pod: Pod, want: Wanted, attempt: int, on_state: OnState) -> None:
        """Report the state of the image by `on_state(key, state)`, and start a pull if it is needed."""
        try:
            reference = with_default_tag(want.image)
        except Invalid as error:
            message = f'Failed to apply default image tag "{want.image}": {error.message}'
            self._warn(pod, want, "InspectFailed", message)
            on_state(want.key, self._failed(attempt, Waiting("InvalidImageName", message), 60))
            return
        try:
            found = await self._status(reference)
        except CriError as error:
            message = f'Failed to inspect image "{want.image}": {error.message}'
            self._warn(pod, want, "InspectFailed", message)
            # A restarting runtime is back within a second or two.
            pause = 1.0 if isinstance(error, CriUnavailable) else 5.0
            on_state(want.key, self._failed(attempt, Waiting("ImageInspectError", message), pause))
            return
        usable = found is not None and asks_for_local(want.policy) and not await self._must_pull(pod, want, found)
        decision = pull_decision(want.policy, present=found is not None, allowed=usable)
        labels = want.policy.lower(), str(found is not None).lower(), str(decision is PullDecision.PULL).lower()
        self._metrics.ensure_image_requests.labels(*labels).inc()
        if decision is PullDecision.USE and found is not None:
            message = f'Container image "{want.image}" already present on machine and can be accessed by the pod'
            self._event(pod, want, "Pulled", message)
            on_state(want.key, _present(attempt, found, reference))
        elif decision is PullDecision.REFUSE:
            foreign = "; it is on the node, but was not pulled with this pod's credentials" if found is not None else ""
            message = f'Container image "{want.image}" is not present with pull policy of Never{foreign}'
            self._warn(pod, want, "ErrImageNeverPull", message)
            on_state(want.key, self._failed(attempt, Waiting("ErrImageNeverPull", message), 10))
        else:
            self._pull(pod, want, reference, attempt, on_state)

    async def _status(self, reference: str) -> ImageFacts | None:
        """What the runtime has of the image. Raises CriError.

        The user that an image names is a part of the runtime's list of all images, which has 16 MiB at most: where it
        has more, no image of the node is collected any more. So an image with such a user goes, as soon as it is seen.
        """
        try:
            found = await self._images.image_status(reference)
            why = unusable(found) if found is not None else ""
        except CriError as error:
            if not is_too_large(error.message):
                raise
            why = "what the runtime says of it is too large"
        if not why:
            return found
        await self._images.remove_image(reference)
        raise CriError(
            f"{why}, so it was removed",
            code="INVALID_ARGUMENT",
            obj=reference,
            step="inspect image",
            action="Build the image with a short USER.",
        )

    async def _must_pull(self, pod: Pod, want: Wanted, found: ImageFacts) -> bool:
        """Whether to pull a local image because this pod may not use it without its own credentials."""

        async def credentials() -> list[PullCredential]:
            return await self._credentials.pull_auth(pod, want.image)

        return await self._records.must_pull(want.image, found.id, credentials)

    def remove(self, uid: str) -> None:
        """The pod is gone: cancel its pulls."""
        for key in [key for key in self._pulls if key[0] == uid]:
            self._pulls.pop(key).cancel()
        self._backoff.pop(uid, None)
        self.unread_secrets.drop_pod(uid)

    async def refresh(self) -> None:
        """Refresh pulls(), unless the runtime does not answer in time: people ask just when it hangs."""
        if self._watch is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._refresh_limit):
                    await self._watch.refresh()

    def pulls(self, uid: str) -> dict[str, PullProgress]:
        """The progress of the pod's pulls, by Wanted.key."""
        mine = [key for key in self._pulls if key[0] == uid]
        turns = self._slots.turns() if mine else {}
        return {key[1]: self._progress_of(key, turns.get(key, 0)) for key in mine}

    def _progress_of(self, key: tuple[str, str], turn: int) -> PullProgress:
        if turn:
            return PullProgress(turn, self._slots.places)
        return self._watch.progress(key) if self._watch is not None else PullProgress()

    async def close(self) -> None:
        await cancel_and_wait(*self._pulls.values())
        await cancel_and_wait(*self._looks)
        if self._watch is not None:
            await self._watch.close()

    def _pull(self, pod: Pod, want: Wanted, reference: str, attempt: int, on_state: OnState) -> None:
        entry = self._backoff.get(pod.uid, {}).get(want.image)
        now = self._clock.steady()
        if entry is not None and (at := entry[0].updated_at + entry[0].delay) > now:
            self._back_off(pod, want, attempt, entry[1], at, on_state)
            return
        key = (pod.uid, want.key)
        if key in self._pulls:
            return
        on_state(want.key, ImageState(attempt, ImagePhase.PULLING))
        task = asyncio.create_task(
            self._pulled(pod, want, reference, attempt, on_state), name=f"pull/{pod.full_name}/{want.key}"
        )
        self._pulls[key] = task

    async def _pulled(self, pod: Pod, want: Wanted, reference: str, attempt: int, on_state: OnState) -> None:
        self._event(pod, want, "Pulling", f'Pulling image "{want.image}"')
        asked = self._clock.monotonic()
        try:
            async with (
                self._slots.place(pod.priority, (pod.uid, want.key), pod.namespace),
                self._watched(pod, want, reference),
            ):
                began = self._clock.monotonic()
                if self._rate is not None and not self._rate.take():
                    raise Temporary("pull QPS exceeded", obj=want.image, step="pull the image", action=_SLOWER)
                ref, by = await self._try_credentials(pod, want.image, reference)
                found = await self._recorded(want.image, reference, ref, by)
        except NodewrightError as error:
            self._pulls.pop((pod.uid, want.key), None)
            self._pull_failed(pod, want, attempt, error.message, on_state)
            return
        except asyncio.CancelledError:
            self._look_later(reference)
            raise
        except Exception as error:
            self._pulls.pop((pod.uid, want.key), None)
            log.exception("pod %s: pulling %s", pod.full_name, want.image)
            self._pull_failed(pod, want, attempt, repr(error), on_state)
            return
        finally:
            now = self._clock.now()
            self._on_pulled(pod.uid, now - (self._clock.monotonic() - asked), now)
        self._pulls.pop((pod.uid, want.key), None)
        self._backoff.get(pod.uid, {}).pop(want.image, None)
        done = self._clock.monotonic()
        size = found.size if found else 0
        self._metrics.image_pull_duration.labels(image_size_class(size)).observe(done - asked)
        message = (
            f'Successfully pulled image "{want.image}" in {_took(done - began)} '
            f"({_took(done - asked)} including waiting). Image size: {size} bytes."
        )
        self._event(pod, want, "Pulled", message)
        on_state(want.key, _present(attempt, found or ImageFacts(ref), ref))

    def _look_later(self, reference: str) -> None:
        """The pod is gone, and nobody else looks at an image that may have come all the same, and may have to go."""

        async def look() -> None:
            with suppress(NodewrightError):
                await self._status(reference)

        task = asyncio.create_task(look(), name=f"look at {reference}")
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    def _watched(self, pod: Pod, want: Wanted, reference: str) -> AbstractAsyncContextManager[None]:
        if self._watch is None:
            return nullcontext()

        def report(text: str) -> None:
            self._event(pod, want, "PullProgress", f'Pulling image "{want.image}": {text}')

        return self._watch.watching((pod.uid, want.key), reference, report)

    async def _recorded(self, image: str, reference: str, ref: str, by: list[PullCredential]) -> ImageFacts | None:
        """The pulled image, after recording who may use it."""
        try:
            found = await self._status(reference) or await self._status(ref)
        except BaseException:
            await self._records.failed(image)
            raise
        await self._records.done(image, found.id if found else ref, by)
        return found

    async def _try_credentials(self, pod: Pod, wanted: str, reference: str) -> tuple[str, list[PullCredential]]:
        """The image's reference, and the credential it was pulled with ([]: none)."""
        # As upstream's PullImage: each set of credentials in turn, and the last error is the one reported.
        auths = await self._credentials.pull_auth(pod, wanted)
        last: CriError | None = None
        await self._records.begin(wanted)
        tries: list[PullCredential | None] = [*auths] or [None]
        for one in tries:
            try:
                ref = await self._images.pull_image(reference, one.auth if one else None, {})
                return ref, [one] if one else []
            except CriError as error:
                last = error
            except BaseException:
                await self._records.failed(wanted)
                raise
        await self._records.failed(wanted)
        raise last or CriError("no credentials to try", obj=wanted)

    def _pull_failed(self, pod: Pod, want: Wanted, attempt: int, message: str, on_state: OnState) -> None:
        now = self._clock.steady()
        mine = self._backoff.setdefault(pod.uid, {})
        entry = mine.get(want.image)
        extended = backoff.extended(entry[0] if entry else None, now, now, BackOffBounds())
        why = pull_failure(want.image, message)
        mine[want.image] = (extended, why)
        # The images of a pod may be changed without end; what a pod names now must not lose its back-off for another's.
        if len(mine) > _BACKOFFS_KEPT + pod.once("images", lambda: _most_images(pod)):
            del mine[next(iter(mine))]
        self._warn(pod, want, "Failed", f'Failed to pull image "{want.image}": {message}')
        self._warn(pod, want, "Failed", f"Error: {why.reason}")
        # The failure is shown for a moment, then the back-off.
        on_state(want.key, ImageState(attempt, ImagePhase.FAILED, waiting=why, retry_at=now + 1))

    def _back_off(self, pod: Pod, want: Wanted, attempt: int, why: Waiting, at: float, on_state: OnState) -> None:
        self._event(pod, want, "BackOff", f'Back-off pulling image "{want.image}"')
        self._warn(pod, want, "Failed", "Error: ImagePullBackOff")
        waiting = pull_backed_off(want.image, why)
        on_state(want.key, ImageState(attempt, ImagePhase.FAILED, waiting=waiting, retry_at=at))

    def _event(self, pod: Pod, want: Wanted, reason: str, message: str) -> None:
        self._events.emit(pod.raw, "Normal", reason, message, container=want.container)

    def _warn(self, pod: Pod, want: Wanted, reason: str, message: str) -> None:
        self._events.emit(pod.raw, "Warning", reason, message, container=want.container)

    def _failed(self, attempt: int, why: Waiting, seconds: float) -> ImageState:
        return ImageState(attempt, ImagePhase.FAILED, waiting=why, retry_at=self._clock.steady() + seconds)


def _most_images(pod: Pod) -> int:
    return sum(1 for _ in pod.containers()) + len(pod.spec.get("volumes") or ())


def _present(attempt: int, found: ImageFacts, reference: str) -> ImageState:
    return ImageState(attempt, ImagePhase.PRESENT, ref=found.id or reference, facts=found)


def _took(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.3f}s"
