"""The kubelet's HTTPS server: every endpoint of upstream's pkg/kubelet/server that we have an honest answer to.

Endpoints walk the plans of their rooms (server, logs, stats).
`start()` is all that a composition root needs.
"""

from agent.server.work.app import KubeletServer, start
from agent.server.work.deps import ServedNode, ServerDeps, ServerEdges

__all__ = ["KubeletServer", "ServedNode", "ServerDeps", "ServerEdges", "start"]
