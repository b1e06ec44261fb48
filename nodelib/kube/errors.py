"""What a call of the API can end with besides an answer."""

from __future__ import annotations

from nodelib.errors import NodewrightError, Temporary


class ApiError(NodewrightError):
    """The API server answered with a failure (metav1.Status). `retry_after`: seconds that it asks to wait."""

    def __init__(self, code: int, reason: str, message: str, *, obj: str = "", retry_after: float | None = None):
        super().__init__(message or reason or f"HTTP {code}", obj=obj)
        self.code = code
        self.reason = reason
        self.retry_after = retry_after

    @property
    def is_not_found(self) -> bool:
        """The object does not exist. An API that is not served at all is something else (NotServed)."""
        return self.code == 404

    @property
    def is_conflict(self) -> bool:
        return self.code == 409 and self.reason != "AlreadyExists"

    @property
    def is_already_exists(self) -> bool:
        return self.code == 409 and self.reason == "AlreadyExists"

    @property
    def is_gone(self) -> bool:
        return self.code == 410 or self.reason == "Expired"

    @property
    def is_forbidden(self) -> bool:
        return self.code in (401, 403)


class NotServed(ApiError):
    """A 404 that is about the API and not about an object: nothing is known of any object."""

    @property
    def is_not_found(self) -> bool:
        return False


class ApiUnreachable(Temporary):
    """No answer from the API server: connection refused, reset, timed out, or TLS failed."""


class UnexpectedAnswer(ApiUnreachable):
    """Something answered, but not as an API server does: a balancer's page, a cut list, an object of another node.

    It says nothing about the cluster. client-go takes every JSON object of status 200 for the list that it asked for,
    so that `{}` is an empty one there.
    """
