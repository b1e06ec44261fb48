"""Adapts the settings of an agent that has no API server."""

from __future__ import annotations

from dataclasses import replace

from agent.settings import Settings
from nodelib.errors import Invalid


def adapted(settings: Settings) -> Settings:
    """The settings without webhook reviews: users are identified by client certificates only.

    Raises Invalid when there is no source of pods, or when anonymous users would be allowed to do everything.
    """
    if not settings.standalone:
        return settings
    if not settings.static.path and not settings.static.url:
        raise Invalid(
            "not given, and no source of static pods either",
            obj="kubeconfig",
            step="find the API server",
            action="Give --kubeconfig; or, to run without an API server, --pod-manifest-path or --manifest-url.",
        )
    auth, notices = settings.server.auth, ["no --kubeconfig: static pods only, without an API server (standalone)"]
    if auth.mode == "Webhook" and auth.anonymous:
        raise Invalid(
            "Webhook needs an API server; without one, anonymous users would be allowed to do everything",
            obj="authorization.mode",
            step="run standalone",
            action="Set authorization.mode to AlwaysAllow, or authentication.anonymous.enabled to false.",
        )
    if auth.webhook or auth.mode == "Webhook":
        text = (
            "users of the kubelet API are identified by client certificates only (clientCAFile), and may do everything"
        )
        notices.append(f"no webhook reviews without an API server: {text}")
    server = replace(settings.server, auth=replace(auth, webhook=False, mode="AlwaysAllow"))
    return replace(settings, server=server, notices=(*settings.notices, *notices))
