"""A program that a supervisor keeps running."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Program:
    """One daemon: its command line, environment and log file; `stop_timeout` in seconds before SIGKILL."""

    name: str
    argv: tuple[str, ...]
    log: str
    env: dict[str, str] = field(default_factory=dict)
    stop_timeout: float = 5.0

    @property
    def digest(self) -> str:
        """Changes whenever the running program must be restarted."""
        text = json.dumps([self.argv, sorted(self.env.items())])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "argv": list(self.argv),
            "log": self.log,
            "env": self.env,
            "stop_timeout": self.stop_timeout,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Program:
        return cls(data["name"], tuple(data["argv"]), data["log"], data["env"], data["stop_timeout"])
