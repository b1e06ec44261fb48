"""An API server of a few objects: versions, conflicts and merge patches as the real one has them."""

from __future__ import annotations

import copy
from collections.abc import Callable

from nodelib.json_values import Json, merge_patch
from nodelib.kube.errors import ApiError, ApiUnreachable


class FakeObjects:
    """`objects`: by path. `before`: called ahead of each write with its verb and path; it may raise."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.version = 0
        self.before: Callable[[str, str], None] = lambda verb, path: None
        self.down = False

    async def get(self, path: str) -> Json:
        self._reached()
        if path not in self.objects:
            raise ApiError(404, "NotFound", f"{path} not found")
        return copy.deepcopy(self.objects[path])

    async def post(self, path: str, body: Json) -> Json:
        self._reached()
        own = f"{path}/{body['metadata']['name']}"
        self.before("POST", own)
        if own in self.objects:
            raise ApiError(409, "AlreadyExists", f"{own} already exists")
        return self.store(own, body)

    async def put(self, path: str, body: Json) -> Json:
        self._reached()
        self.before("PUT", path)
        await self._check(path, body)
        return self.store(path, body)

    async def patch(self, path: str, body: Json) -> Json:
        self._reached()
        self.before("PATCH", path)
        own = path.removesuffix("/status")
        await self._check(own, body)
        return self.store(own, merge_patch(self.objects[own], body))

    async def reconnect(self) -> None:
        pass

    def store(self, path: str, obj: Json) -> Json:
        self.version += 1
        kept = copy.deepcopy(obj)
        kept["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = kept
        return copy.deepcopy(kept)

    def _reached(self) -> None:
        if self.down:
            raise ApiUnreachable("no answer")

    async def _check(self, path: str, body: Json) -> None:
        there = await self.get(path)
        wanted = (body.get("metadata") or {}).get("resourceVersion")
        if wanted is not None and wanted != there["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", f"{path} has changed")
