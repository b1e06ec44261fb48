"""The kubelet's API: who may ask for what."""

from __future__ import annotations

from tests.mutations.model import Mutation

_TESTS = ("unit/agent/server/test_auth.py", "unit/agent/server/test_authz.py", "unit/agent/server/test_access_table.py")
_AUTH, _AUTHZ = "agent/server/work/auth.py", "agent/server/plan/authz.py"

TABLE = (
    Mutation(
        "webhook-authorization",
        "authorization.mode Webhook",
        _AUTH,
        "return 403, authz.forbidden(user, asked)",
        "return None",
        _TESTS,
    ),
    Mutation(
        "webhook-denied",
        "`denied` of a SubjectAccessReview",
        _AUTHZ,
        'bool(status.get("allowed")) and not status.get("denied")',
        'bool(status.get("allowed"))',
        _TESTS,
    ),
    Mutation(
        "webhook-authentication",
        "authentication.webhook",
        _AUTH,
        "if token and self._settings.webhook:",
        "if False:",
        _TESTS,
    ),
    Mutation(
        "webhook-cache",
        "decisions are cached for a time only",
        _AUTH,
        "if entry is not None and entry[0] > self._clock.monotonic():\n            return entry[1]",
        "if entry is not None:\n            return entry[1]",
        _TESTS,
    ),
    Mutation(
        "anonymous",
        "authentication.anonymous",
        _AUTH,
        "return authz.anonymous_user() if self._settings.anonymous else None",
        "return authz.anonymous_user()",
        _TESTS,
    ),
    Mutation(
        "client-certificates",
        "authentication by client certificate",
        _AUTH,
        "        if known is not None:\n",
        "        if False:\n",
        _TESTS,
    ),
    Mutation(
        "fine-grained",
        "fine-grained authorization (nodes/pods, nodes/healthz, nodes/configz)",
        _AUTHZ,
        "    if fine_grained:",
        "    if False:",
        _TESTS,
    ),
    Mutation(
        "streams-need-create",
        "what runs something in a pod needs the verb create, also with a GET",
        _AUTHZ,
        "if streams_need_create and",
        "if False and",
        _TESTS,
    ),
    Mutation(
        "allocated-pods",
        "/allocatedPods shows no status",
        "agent/server/work/pods.py",
        'return {**pod.raw, "status": {}}',
        "return pod.raw",
        ("unit/agent/server",),
    ),
)
