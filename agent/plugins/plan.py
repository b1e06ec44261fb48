"""Which plugins to register and which to deregister.

Follows pkg/kubelet/pluginmanager: a plugin whose socket was created anew has been restarted, one whose socket is gone
is gone, and failed registrations are tried again.
"""

from __future__ import annotations

from agent.plugins.model import FailedRegistration, PluginsPlan, PluginsView, SocketFile

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
    due = tuple(found[path] for path in free if _due_at(view, found[path]) <= now)
    later = [_due_at(view, found[path]) for path in free]
    return PluginsPlan(gone, due, min((at for at in later if at > now), default=None))


def failed_again(socket: SocketFile, before: FailedRegistration | None, now: float) -> FailedRegistration:
    """When to try again after one more failure. `now` in monotonic seconds."""
    times = before.times + 1 if before is not None and before.socket == socket else 1
    return FailedRegistration(socket, now + min(_FIRST_PAUSE * 2.0 ** (times - 1), _LONGEST_PAUSE), times)


def _due_at(view: PluginsView, socket: SocketFile) -> float:
    failed = view.failed.get(socket.path)
    return failed.retry_at if failed is not None and failed.socket == socket else 0.0
