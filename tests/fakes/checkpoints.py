"""Small files that outlive the agent, in memory."""

from __future__ import annotations


class MemoryFiles:
    """agent.common.ports.CheckpointStore; `kept` by name; `writes` counts them."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.writes = 0

    async def read(self, name: str) -> str | None:
        return self.kept.get(name)

    async def write(self, name: str, text: str) -> None:
        self.kept[name] = text
        self.writes += 1

    async def set_aside(self, name: str) -> str:
        self.kept[f"{name}.unreadable"] = self.kept.pop(name)
        return f"{name}.unreadable"
