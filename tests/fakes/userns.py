"""Where pods' IDs are remembered and come from, in memory."""

from __future__ import annotations

from collections.abc import Mapping

from agent.userns.model import UserNamespaceSettings
from agent.userns.work import UserNamespaces
from nodelib.errors import Temporary


class FakeMappings:
    """`texts` by the pods' UIDs outlive an agent. `full`: the disk is."""

    def __init__(self) -> None:
        self.texts: dict[str, str | None] = {}
        self.full = False

    async def read(self) -> Mapping[str, str | None]:
        return dict(self.texts)

    async def write(self, uid: str, text: str) -> None:
        if self.full:
            raise Temporary("no space left on device", obj=self.path(uid))
        self.texts[uid] = text

    def path(self, uid: str) -> str:
        return f"/pods/{uid}/userns"


class FakeSubordinateIds:
    """`printed`: None, as where there is no user kubelet. `down`: the directory service does not answer."""

    def __init__(self, printed: tuple[str, str] | None = None) -> None:
        self.printed, self.down, self.asked = printed, False, 0

    async def of(self, user: str) -> tuple[str, str] | None:
        self.asked += 1
        if self.down:
            raise Temporary("no answer", obj=f"user {user}")
        return self.printed


def user_namespaces(mappings: FakeMappings | None = None, **settings: int) -> UserNamespaces:
    """With any IDs of the host."""
    return UserNamespaces(UserNamespaceSettings(**settings), mappings or FakeMappings(), FakeSubordinateIds())
