"""The watches of a custom resource, and of what it depends on, for as long as the cluster has its definition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from nodelib.backoff import Backoff
from nodelib.kube.client import KubeClient
from nodelib.kube.definition import CRDS, Definition
from nodelib.kube.errors import ApiError, ApiUnreachable
from nodelib.tasks import Supervisor, cancel_and_wait
from view.edge.watches import OnChange, OnState, reflector

log = logging.getLogger(__name__)

OnNote = Callable[[str], None]
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0


def watch_custom(
    client: KubeClient,
    resource: tuple[str, str, str],
    paths: Mapping[str, str],
    on_change: OnChange,
    on_state: OnState,
    on_note: OnNote,
    tasks: Supervisor,
) -> None:
    """As watch(). `resource`: its group, version and plural; `on_note` is told why it cannot be followed."""
    one = _Custom(client, resource, paths, on_change, on_state)

    async def run() -> None:
        try:
            await one.run()
        except ApiError as error:  # this user may not; the rest of the page is worth having
            log.warning("%s are not shown: %s", resource[2], error)
            on_note(f"{resource[2]} are not shown: {error}")

    tasks.once(f"watch {resource[2]}", run)


class _Custom:
    def __init__(
        self,
        client: KubeClient,
        resource: tuple[str, str, str],
        paths: Mapping[str, str],
        on_change: OnChange,
        on_state: OnState,
    ) -> None:
        self._client, self._paths, self._on_change, self._on_state = client, paths, on_change, on_state
        self._definition = Definition(
            client, *resource, on_state=lambda problem: on_state(resource[2], problem, not problem)
        )

    async def run(self) -> None:
        """Until cancelled. Raises ApiError where this user may not list what is needed."""
        await self._permitted(CRDS, self._definition.params)
        task = asyncio.create_task(self._definition.reflector.run(), name="watch its definition")
        try:
            while True:
                await self._definition.served.wait()
                for path in self._paths.values():
                    await self._permitted(path, {"limit": "1"})
                if self._definition.served.is_set():
                    await self._follow()
        finally:
            await cancel_and_wait(task)

    async def _follow(self) -> None:
        """Until the definition is gone; its objects are then reported as deleted."""
        found = {
            kind: reflector(self._client, kind, path, self._on_change, self._on_state)
            for kind, path in self._paths.items()
        }
        tasks = [asyncio.create_task(one.run(), name=f"watch {one.name}") for one in found.values()]
        try:
            await self._definition.gone.wait()
        finally:
            await cancel_and_wait(*tasks)
        for kind, one in found.items():
            self._on_state(kind, "", True)
            for key in list(one.store):
                self._on_change(kind, key, None)

    async def _permitted(self, path: str, params: dict[str, str]) -> None:
        """Wait until the API server answers: it serves a resource some time after its definition says so.

        Raises ApiError where this user may not list that.
        """
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, growth=1.5, jitter=0.2)
        while path == CRDS or self._definition.served.is_set():
            try:
                await self._client.get(path, params)
            except ApiError as error:
                if error.is_forbidden:
                    raise
                await asyncio.sleep(pause.next(error.retry_after))
            except ApiUnreachable as error:
                await asyncio.sleep(pause.next(error.retry_after))
            else:
                return
