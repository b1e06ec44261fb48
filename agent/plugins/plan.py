"""Which plugins to register and which to deregister.

Follows pkg/kubelet/pluginmanager: a plugin whose socket was created anew has been restarted, one whose socket is gone
is gone, and failed registrations are tried again. Upstream registers one plugin after the other and takes any name.
"""

from __future__ import annotations

import re

from agent.plugins.model import (
    DEVICE_PLUGIN,
    FailedRegistration,
    PluginInfo,
    PluginsPlan,
    PluginsView,
    SocketFile,
    can_be_socket,
)
from nodelib.errors import Invalid
from nodelib.text import one_line

# Registrations under way: a folder full of sockets that never answer holds no more. Those that take long do not count,
# or 32 drivers that hang would keep all others from registering for minutes.
_AT_ONCE, _COUNTS, _MOST = 32, 5.0, 256
_VERSIONS = 100
_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 120.0  # seconds; upstream's are 0.5 and 122


def plan_plugins(view: PluginsView, now: float) -> PluginsPlan:
    """`now` in monotonic seconds."""
    found = {one.path: one for one in view.found}
    gone = tuple(
        known
        for path, known in sorted(view.registered.items())
        if path not in view.busy and found.get(path) != known.socket
    )
    # A restarted plugin is deregistered first; the next plan registers it again.
    free = sorted(path for path in found if path not in view.busy and path not in view.registered)
    # Sockets that have not failed come first, the oldest before others: neither junk nor plugins that come and go must
    # keep a new one waiting.
    due = sorted(
        (path for path in free if _due_at(view, found[path]) <= now),
        key=lambda path: (_failures(view, path), found[path].modified_ns),
    )
    recent = [taken for taken in view.registering if taken < _COUNTS]
    chosen = tuple(found[path] for path in due[: max(0, min(_AT_ONCE - len(recent), _MOST - len(view.registering)))])
    later = [at for path in free if (at := _due_at(view, found[path])) > now]
    if len(chosen) < len(due) and recent:
        later.append(now + _COUNTS - max(recent))  # then there is room for another one
    return PluginsPlan(gone, chosen, min(later, default=None))


def check_info(info: PluginInfo) -> None:
    """Raises Invalid for an answer that cannot be a plugin's: its name becomes part of paths, metrics and log lines.

    A name is a domain, with a name after a slash for a device plugin.
    """
    names = info.name.split("/", 1) if info.type == DEVICE_PLUGIN else [info.name]
    listens = info.endpoint.startswith("/") and can_be_socket(info.endpoint)
    wrong = (
        (not _WORD.fullmatch(info.type), f"type {one_line(info.type, 64)!r}"),
        (not all(_WORD.fullmatch(one) for one in names), f"name {one_line(info.name, 256)!r}"),
        (not listens, f"endpoint {one_line(info.endpoint, 256)!r}"),
        (
            len(info.versions) > _VERSIONS or not all(_WORD.fullmatch(one) for one in info.versions),
            f"{len(info.versions)} versions, such as {one_line(next(iter(info.versions), ''), 64)!r}",
        ),
    )
    for is_wrong, what in wrong:
        if is_wrong:
            raise Invalid(
                f"GetInfo answers with {what}",
                obj="plugin",
                step="register",
                action="Correct the plugin's registrar: names are domains, the endpoint is the path of a socket.",
            )


def _failures(view: PluginsView, path: str) -> int:
    failed = view.failed.get(path)
    return failed.times if failed is not None else 0


def failed_again(socket: SocketFile, before: FailedRegistration | None, now: float) -> FailedRegistration:
    """When to try again after one more failure. `now` in monotonic seconds."""
    times = before.times + 1 if before is not None and before.socket == socket else 1
    return FailedRegistration(socket, now + min(_FIRST_PAUSE * 2.0 ** (times - 1), _LONGEST_PAUSE), times)


def _due_at(view: PluginsView, socket: SocketFile) -> float:
    failed = view.failed.get(socket.path)
    return failed.retry_at if failed is not None and failed.socket == socket else 0.0
