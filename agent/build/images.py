"""Joins the sources of credentials for image pulls: pull secrets, the node's logins, credential provider plugins."""

from __future__ import annotations

import os

from agent.common.metrics import Metrics
from agent.images.edge import credential_plugins
from agent.images.edge.docker_config import NodeLogins
from agent.images.plan.credential_providers import providers
from agent.images.work.pull_credentials import Accounts, PullCredentials, Secrets
from agent.settings import Settings
from nodelib.clock import Clock
from nodelib.errors import Invalid
from nodelib.rate_limiter import TokenBucket


def pull_rate(settings: Settings, clock: Clock) -> TokenBucket | None:
    """What each pull takes a token from; None: pulls are not limited in rate."""
    rate = settings.images.pull_rate
    return TokenBucket(rate.qps, rate.burst, clock.monotonic) if rate is not None else None


def build_pull_credentials(
    settings: Settings, secrets: Secrets, clock: Clock, metrics: Metrics, accounts: Accounts | None = None
) -> PullCredentials:
    """Raises Invalid if the configuration of the plugins is wrong, or a plugin does not exist."""
    logins = NodeLogins(settings.paths.root_dir, os.path.expanduser("~"))
    path, folder = settings.images.providers_config, settings.images.providers_dir
    if not path and not folder:
        return PullCredentials(secrets, (), None, clock, logins)
    if not path or not folder:
        raise Invalid(
            "one of them is missing",
            obj="--image-credential-provider-config and --image-credential-provider-bin-dir",
            action="Set both or neither.",
        )
    found = providers(credential_plugins.read(path), path, tokens=settings.images.provider_tokens)
    for one in found:
        if not os.access(os.path.join(folder, one.name), os.X_OK):
            raise Invalid(
                "there is no such program",
                obj=os.path.join(folder, one.name),
                step="look for credential provider plugins",
                action=f"Install the plugin there, or remove it from {path}.",
            )
    plugins = credential_plugins.CredentialPlugins(folder, metrics.credential_plugin_ran)
    return PullCredentials(secrets, found, plugins, clock, logins, accounts)
