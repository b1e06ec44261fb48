"""What a plugin answers when it does not do what it is asked for."""

from __future__ import annotations

from nodelib.errors import NodewrightError


class Refused(NodewrightError):
    """An answer with a gRPC status of its own, such as "ALREADY_EXISTS"."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
