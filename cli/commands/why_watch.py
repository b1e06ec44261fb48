"""`nodewright why --watch`: the API by watches; the agents, which have none, are asked again while something moves."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from dataclasses import replace

from rich.console import RenderableType

from cli.clusters import find
from cli.commands import why
from cli.display.terminal import Collected
from cli.watching.changes import Frame
from cli.watching.collections import Collections
from cli.watching.follow import follow
from cli.watching.screens import screen
from cli.why import judge, news, show
from cli.why.logs import LogWanted
from cli.why.model import Explained, Facts
from cli.why.sources import PATHS, Answers, Sources, client
from cli.why.targets import Target
from cli.why.wording import Wording
from controlplane.cluster.edge import state
from controlplane.cluster.model import Cluster
from nodelib.backoff import Backoff
from nodelib.clock import SystemClock
from nodelib.errors import Temporary
from nodelib.tasks import Supervisor

_AGAIN, _LATEST = 0.5, 5.0  # seconds until the agents are asked again
_LOGS = 32  # ends of logs that are remembered
_VOLATILE = frozenset({"costs", "last", "count"})  # what is measured, and how often a flow was refused


def run(name: str, about: str, namespace: str | None, *, as_json: bool, kubeconfig: str, plain: bool) -> None:
    """As why.run(), until SIGINT or SIGTERM; an object that does not exist is waited for.

    Raises NotFound for an unknown cluster.
    """
    cluster = state.load(name)
    wanted = why.asked_about(about, namespace)
    if cluster is None and not kubeconfig and state.clusters():
        find(name)  # raises NotFound, which names the clusters that exist
    asyncio.run(_run(cluster, wanted, namespace, kubeconfig, as_json=as_json, plain=plain))


async def _run(
    cluster: Cluster | None,
    wanted: Target | None,
    namespace: str | None,
    kubeconfig: str,
    *,
    as_json: bool,
    plain: bool,
) -> None:
    logging.basicConfig(level=logging.ERROR)
    clock = SystemClock()
    async with Remembering(cluster, kubeconfig) as sources, Supervisor("why") as tasks:
        tasks.stop_on_signals()
        source = WhySource(sources, cluster, wanted, namespace, Wording(cluster.name if cluster else "", kubeconfig))
        watching, problem = client(sources.kubeconfig, 10)
        if watching is not None:
            source.collections = Collections(watching, PATHS, source.news)
            source.collections.start(tasks)
            tasks.on_stop("client", watching.close)
        source.no_api = problem
        title = source.wording.typed("`nodewright why`").strip("`")
        about = f" {wanted.kind}/{wanted.name}" if wanted is not None else ""
        with screen(f"{title}{about} --watch", as_json=as_json, plain=plain) as shown:
            await tasks.unless_stopped(follow(source, shown, clock))


class Remembering(Sources):
    """Asks for the log of a container anew only when its pod has changed. `facts`: what is known of the pods."""

    def __init__(self, cluster: Cluster | None, kubeconfig: str) -> None:
        super().__init__(cluster, kubeconfig)
        self.facts = Facts()
        self._logs: dict[tuple[LogWanted, object], str] = {}

    async def log(self, wanted: LogWanted) -> str:
        pod = self.facts.named("pod", wanted.namespace, wanted.pod)
        key = (wanted, pod["metadata"].get("resourceVersion") if pod is not None else None)
        if key not in self._logs:
            self._logs = dict(list(self._logs.items())[-_LOGS:])
            self._logs[key] = await super().log(wanted)
        return self._logs[key]


class WhySource:
    """Implements cli.watching.follow.Source. `collections` None: there is no kubeconfig, as `no_api` says."""

    def __init__(
        self,
        sources: Remembering,
        cluster: Cluster | None,
        wanted: Target | None,
        namespace: str | None,
        wording: Wording,
    ) -> None:
        self.news = asyncio.Event()
        self.collections: Collections | None = None
        self.no_api = ""
        self.wording = wording
        self._sources, self._cluster, self._wanted, self._namespace = sources, cluster, wanted, namespace
        self._pause, self._seen = Backoff(_AGAIN, _LATEST), object()

    async def frame(self) -> Frame:
        answers = await self._answers()
        every = await asyncio.to_thread(why.judged, self._cluster, answers)
        found = await self._found(every, answers)
        if found != self._seen:
            self._pause.reset()
        self._seen = found
        return frame(found, every, answers, self._wanted, self._namespace, self.wording)

    def rest(self) -> float:
        return self._pause.next()

    async def _answers(self) -> Answers:
        answers = await self._sources.nodes()
        if self.collections is None:
            return replace(answers, api=self.no_api)
        await self.collections.first()
        lists = self.collections.lists()
        api = self.collections.why_silent("pod")
        silent = {} if api else {kind: self.collections.lasting(kind) for kind in PATHS}
        unlisted = {kind: Temporary(problem) for kind, problem in silent.items() if problem}
        self.collections.said()
        self._sources.facts = Facts(lists)
        return replace(answers, facts=self._sources.facts, api=api, unlisted=unlisted)

    async def _found(self, every: list[Explained], answers: Answers) -> list[Explained]:
        if self._wanted is None:
            found = judge.troubles(every, self._namespace or "")
        else:
            found = judge.about(self._wanted, every, answers.facts)
            found = await why.with_more(self._sources, found, answers) if found else []
        return judge.with_drops(found, answers.drops)


def frame(
    found: list[Explained],
    every: list[Explained],
    answers: Answers,
    wanted: Target | None,
    namespace: str | None,
    wording: Wording,
) -> Frame:
    """What was found as a moment that can be compared with others."""
    count = judge.pods_in(every, namespace)
    entries, happened = _world(answers), tuple[str, ...]()
    if wanted is None:
        many = f"{len(found)} of {len(every)} objects" if found else f"nothing; there are {count} pods"
        entries["not well"] = (many,)
    elif not found:
        entries[_called(wanted)] = ("there is none; it is followed as soon as there is one",)
    elif len(found) == 1 and found[0].kind == "pod":
        happened = news.timeline(found[0])
    entries |= news.entries(found, wording)

    def drawn(now: float) -> Iterable[RenderableType]:
        collected = Collected()
        page = show.Page(now, wording, collected)
        for key, said in _world(answers).items():
            if said != ("answers",):
                page.say(f"{key} {said[0]}", style="bold red")
        if wanted is not None and not found:
            page.say(f"There is no {_called(wanted)}; it is shown as soon as there is one.")
        else:
            why.put(found, wanted, page, count, namespace)
        return collected.parts

    well = {f"agent of {node}": "answers" for node in answers.agents}
    well |= {f"API server, {kind}s": "gives news again" for kind in answers.facts.lists}
    document = json.loads(json.dumps(why.document(found, answers, wording)))
    return Frame(entries, document, drawn, {**news.well(every), **well}, happened, _VOLATILE)


def _called(wanted: Target) -> str:
    return f"{wanted.kind} " + (wanted.name if wanted.kind == "node" else f"{wanted.namespace}/{wanted.name}")


def _world(answers: Answers) -> dict[str, tuple[str, ...]]:
    """Who answers: what is said of objects may be old otherwise."""
    found: dict[str, tuple[str, ...]] = {"API server": ("answers",)}
    if answers.api:
        found["API server"] = (f"does not answer ({answers.api}); what is said of its objects is as it was before",)
    found |= {f"API server, {kind}s": (f"gives no news: {error.message}",) for kind, error in answers.unlisted.items()}
    return found | {f"agent of {node}": (f"does not answer: {reason}",) for node, reason in answers.silent.items()}
