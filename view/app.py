"""Joins the watches, the board and the server, and runs them until the process is told to stop."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping

from nodelib.clock import SystemClock
from nodelib.daemons.memory import keep_trimmed
from nodelib.errors import NodewrightError
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.tasks import Supervisor
from view.edge.custom import watch_custom
from view.edge.files import files
from view.edge.server import HOST, BrowserWire, Server
from view.edge.watches import EventFeeds, watch
from view.model.objects import CLUSTER_POLICIES, CUSTOM_PATHS, PATHS
from view.plan import requests, texts
from view.ports import Answers
from view.work.board import Board
from view.work.viewer import Viewer

_TOKEN = 24  # bytes
_SECONDS = 60.0  # for one of them


async def serve(
    access: ClusterAccess, answers: Answers, cluster: str, *, port: int = 0, ready: Callable[[str], None]
) -> None:
    """Until SIGINT or SIGTERM. `ready` gets the address of the page, with its token. Raises Temporary for the port."""
    clock, token = SystemClock(), secrets.token_urlsafe(_TOKEN)
    board, tracer = Board(clock, cluster, answers.applied_to), _Tracer(answers)
    async with (
        KubeClient(access, user_agent="nodewright-view", timeout=30) as client,
        Supervisor("view") as tasks,
    ):
        feeds = EventFeeds(client)

        def viewer(wire: BrowserWire) -> Viewer:
            return Viewer(board, answers, feeds, wire, clock)

        server = Server(
            files(),
            lambda method, target, headers: requests.judge(method, target, headers, token),
            viewer,
            {requests.TRACE: tracer.ask},
            requests.LIVE,
        )
        async with server.listening(port) as opened:
            tasks.stop_on_signals()
            tasks.spawn("memory", lambda: keep_trimmed(clock))
            tasks.spawn("board", board.run)
            watch(client, PATHS, board.changed, board.on_state, tasks)
            watch_custom(client, CLUSTER_POLICIES, CUSTOM_PATHS, board.changed, board.on_state, board.note, tasks)
            ready(f"http://{HOST}:{opened}/{token}/")
            await tasks.wait()


class _Tracer:
    """Answers the questions of the view of a packet."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def ask(self, query: Mapping[str, str]) -> tuple[int, bytes]:
        """The status of the answer, and the answer."""
        asked = requests.question(query)
        if asked is None:
            return 400, texts.problem(
                "Give from and to: a pod, a node, a Service or an address, as `trace` takes them."
            )
        try:
            async with asyncio.timeout(_SECONDS):
                return 200, texts.traced(await self._answers.trace(asked))
        except NodewrightError as error:
            return 200, texts.problem(str(error))
        except TimeoutError:
            return 200, texts.problem(f"There was no answer in {_SECONDS:g} s.")
