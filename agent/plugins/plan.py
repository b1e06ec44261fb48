"""Which plugins to register and which to let go. Follows pkg/kubelet/pluginmanager: a socket that has been made anew
is a plugin that has been started anew; one that is gone is a plugin that is gone; what fails is tried again.
"""

from __future__ import annotations

from agent.plugins.model import PluginsPlan, PluginsView, Refused, SocketFile

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 120.0  # seconds; upstream's are 0.5 and 122


def plan_plugins(view: PluginsView, now: float) -> PluginsPlan:
    """`now` in monotonic seconds."""
    found = {one.path: one for one in view.found}
    gone = tuple(
        known
        for path, known in sorted(view.registered.items())
        if path not in view.busy and found.get(path) != known.socket
    )
    # A plugin that was started anew is let go first: the next plan registers it.
    free = sorted(path for path in found if path not in view.busy and path not in view.registered)
    due = tuple(found[path] for path in free if _due_at(view, found[path]) <= now)
    later = [_due_at(view, found[path]) for path in free]
    return PluginsPlan(gone, due, min((at for at in later if at > now), default=None))


def refused(socket: SocketFile, before: Refused | None, now: float) -> Refused:
    """The next try after one more failure."""
    times = before.times + 1 if before is not None and before.socket == socket else 1
    return Refused(socket, now + min(_FIRST_PAUSE * 2.0 ** (times - 1), _LONGEST_PAUSE), times)


def _due_at(view: PluginsView, socket: SocketFile) -> float:
    failed = view.refused.get(socket.path)
    return failed.retry_at if failed is not None and failed.socket == socket else 0.0
