"""What the container runtime answers when it does not do what it was asked, and its streaming server.

The class is the decision (see nodelib.errors); `code` is the gRPC status name that CRI
answered with, for the few places where upstream tells the codes apart.
"""

from __future__ import annotations

from nodelib.errors import Invalid, NodewrightError, NotFound, Temporary


class CriError(NodewrightError):
    """The runtime refused or failed; `code` is a gRPC status name such as "UNKNOWN"."""

    def __init__(self, message: str, *, code: str = "UNKNOWN", obj: str = "", step: str = "", action: str = "") -> None:
        NodewrightError.__init__(self, message, obj=obj, step=step, action=action)
        self.code = code


class CriNotFound(CriError, NotFound):
    """The sandbox, container or image is not (or no longer) there."""


class CriInvalid(CriError, Invalid):
    """What was to be asked is no message of CRI: a field of the pod has a value that cannot be."""


class UpgradeFailed(Exception):
    """No upgrade of a connection took place: `status`, `body` and `headers` are the answer for the client."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        super().__init__(body.decode(errors="replace"))
        self.status = status
        self.body = body
        self.headers = headers or {}


class CriUnavailable(CriError, Temporary):
    """No answer in time, or no runtime at the socket."""

    retry_after: float | None = None


class PluginError(Temporary):
    """A plugin on this node refused or failed; `code` is a gRPC status name."""

    def __init__(self, message: str, *, code: str = "UNKNOWN", obj: str = "", step: str = "", action: str = "") -> None:
        super().__init__(message, obj=obj, step=step, action=action)
        self.code = code


class PluginUnavailable(PluginError):
    """No answer in time, or nobody at the plugin's socket."""
