"""What volumes/work/pod_certificates.py asks of the world, in memory; a test answers as signer."""

from __future__ import annotations

from collections.abc import Callable

from nodelib.errors import NodewrightError
from nodelib.json_values import Json


class FakeRequests:
    """`failures` are raised by the next creations, one each. Key number N is (b"KEY N", b"PROOF N")."""

    def __init__(self) -> None:
        self.made: list[Json] = []
        self.keys: list[str] = []
        self.failures: list[NodewrightError] = []
        self.visible: dict[tuple[str, str], Json] = {}
        self._notify: Callable[[str, str, bool], None] = lambda namespace, name, gone: None

    def follow(self, on_change: Callable[[str, str, bool], None]) -> None:
        self._notify = on_change

    async def key(self, kind: str, namespace: str) -> tuple[bytes, bytes]:
        self.keys.append(kind)
        return b"KEY %d\n" % len(self.keys), b"PROOF %d" % len(self.keys)

    async def account_uid(self, namespace: str, name: str) -> str:
        return f"uid of {namespace}/{name}"

    async def create(self, request: Json) -> str:
        if self.failures:
            raise self.failures.pop(0)
        self.made.append(request)
        return f"req-{len(self.made)}"

    def find(self, namespace: str, name: str) -> Json | None:
        return self.visible.get((namespace, name))

    def answer(self, status: Json, number: int | None = None) -> None:
        """Show request `number` (the last by default) with this status."""
        name, request = self._request(number)
        meta = {**request["metadata"], "name": name}
        self.visible[meta["namespace"], name] = {**request, "metadata": meta, "status": status}
        self._notify(meta["namespace"], name, False)

    def delete(self, number: int | None = None) -> None:
        name, request = self._request(number)
        namespace = request["metadata"]["namespace"]
        self.visible.pop((namespace, name), None)
        self._notify(namespace, name, True)

    def _request(self, number: int | None) -> tuple[str, Json]:
        number = number or len(self.made)
        return f"req-{number}", self.made[number - 1]
