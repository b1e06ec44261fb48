"""The endpoints and their wiring: routes.py lists them, server.py serves them; `start()` is the entry point."""

from agent.server.work.dependencies import ServedNode, ServerDeps, ServerEdges
from agent.server.work.server import KubeletServer, start

__all__ = ["KubeletServer", "ServedNode", "ServerDeps", "ServerEdges", "start"]
