"""Failures of the container runtime and of plugins on this node.

The class says what to do about one (see nodelib.errors); `code` is the name of the gRPC status, for the few places
where upstream distinguishes the codes.
"""

from __future__ import annotations

from nodelib.errors import Invalid, NodewrightError, NotFound, Temporary


class CriError(NodewrightError):
    """The runtime refused or failed; `code` is a gRPC status name such as "UNKNOWN"."""

    def __init__(self, message: str, *, code: str = "UNKNOWN", obj: str = "", step: str = "", action: str = "") -> None:
        NodewrightError.__init__(self, message, obj=obj, step=step, action=action)
        self.code = code


class CriNotFound(CriError, NotFound):
    """The sandbox, container or image does not exist (any more)."""


class CriInvalid(CriError, Invalid):
    """The request cannot be a CRI message: a field of the pod has a value of a wrong type or range."""


class CriUnavailable(CriError, Temporary):
    """No answer in time, or nothing listens at the runtime's socket."""

    retry_after: float | None = None


class PluginError(Temporary):
    """A plugin on this node refused or failed; `code` is a gRPC status name."""

    def __init__(self, message: str, *, code: str = "UNKNOWN", obj: str = "", step: str = "", action: str = "") -> None:
        super().__init__(message, obj=obj, step=step, action=action)
        self.code = code


class AttachLimitExceeded(Temporary):
    """No more volumes of this driver can be attached to the node, says who attaches them."""


class PluginUnavailable(PluginError):
    """No answer in time, or nothing listens at the plugin's socket."""
