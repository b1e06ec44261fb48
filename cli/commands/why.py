"""`nodewright why`: asks the agents and the API server, and prints one object or all that are not well."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from agent.explain.plan.document import from_json, to_json
from cli.clusters import reachable
from cli.errors import describe, fail
from cli.explain import read
from cli.explain.facts import Facts as EndpointFacts
from cli.explain.listening import Listening, blind
from cli.why import judge, logs, show, trace
from cli.why.model import Explained, LogTail
from cli.why.sources import NOT_ALLOWED, Answers, Sources
from cli.why.targets import Target, meant, target
from cli.why.wording import Wording
from controlplane.cluster.advice import ours
from controlplane.cluster.edge import state
from controlplane.cluster.model import DEFAULT_NAME, Cluster
from nodelib.errors import Invalid, NodewrightError, NotFound, Temporary
from nodelib.text import one_line
from policy.drops.plan.document import as_json

_NOT_WELL, _WRONG_USAGE = 1, 2
_LINE = 4000  # bytes of a printed note


def run(
    name: str,
    about: str,
    namespace: str | None,
    *,
    as_json: bool,
    kubeconfig: str = "",
    waterfall: bool = False,
    otlp: str = "",
) -> None:
    """Explain one object and its pods, or without `about` everything that is not well; `namespace` None: all.

    `waterfall` draws the start of one pod instead; `otlp` writes its trace to that file, "-" for stdout.
    Exits with 1 if something is not well. Raises NotFound for an unknown object, Temporary when neither the API server
    nor an agent answers.
    """
    cluster = state.load(name)
    wanted = asked_about(about, namespace)
    answers, found, count = asyncio.run(_found(name, cluster, wanted, namespace, kubeconfig))
    wording = Wording(cluster.name if cluster else "", kubeconfig)
    if waterfall or otlp:
        _notes(answers)
        trace.show(_only_pod(found, about), answers.facts, waterfall=waterfall, otlp=otlp)
    elif as_json:
        print(json.dumps(document(found, answers, wording), indent=1))
    else:
        _notes(answers)
        put(found, wanted, show.Page(time.time(), wording), count, namespace)
    if _a_node_is_silent(cluster, answers) or any(not one.is_well for one in found):
        raise SystemExit(_NOT_WELL)


def _only_pod(found: list[Explained], about: str) -> Explained:
    """The pod that was asked for. Exits with 2 when that is no pod, or several."""
    if len(found) != 1 or found[0].kind != "pod":
        fail(f"--waterfall and --otlp are about one pod{f', and {about} is none' if about else ''}.", _WRONG_USAGE)
    return found[0]


def _a_node_is_silent(cluster: Cluster | None, answers: Answers) -> bool:
    """A machine that only has a kubeconfig runs no agent, and who is not root may not ask one: both are in order."""
    return cluster is not None and any(why != NOT_ALLOWED for why in answers.silent.values())


def asked_about(about: str, namespace: str | None) -> Target | None:
    """What the words of the command line mean; None for everything. Wrong words end the command."""
    try:
        return target(about, namespace or "default") if about else None
    except Invalid as error:
        fail(describe(error), _WRONG_USAGE)


async def _found(
    name: str, cluster: Cluster | None, wanted: Target | None, namespace: str | None, kubeconfig: str
) -> tuple[Answers, list[Explained], int]:
    """The answers, what is to be shown, and how many pods there are."""
    async with Sources(cluster, kubeconfig) as sources:
        answers = await sources.ask()
        if not answers.agents and not answers.api_answers:
            raise _nobody_answers(name, answers)
        every = await asyncio.to_thread(judged, cluster, answers, wanted)
        if wanted is None:
            found = judge.with_drops(judge.troubles(every, namespace or ""), answers.drops)
            return answers, found, judge.pods_in(every, namespace)
        found = judge.about(wanted, every, answers.facts)
        if not found:
            raise _unknown(name, wanted, every, answers)
        more = await with_more(sources, found, answers)
        return answers, judge.with_drops(more, answers.drops), judge.pods_in(every, None)


def judged(cluster: Cluster | None, answers: Answers, wanted: Target | None = None) -> list[Explained]:
    """Everything that was answered, judged by who listens on the nodes of this machine, too.

    That takes milliseconds for each pod behind a Service, and is left out where another object is all that is `wanted`.
    """
    machines = [one.name for one in cluster.nodes] if cluster is not None else None
    look: Callable[[EndpointFacts], Listening] = blind
    if cluster is not None and (wanted is None or wanted.kind == "service"):
        look = partial(read.listening, cluster)
    return judge.everything(answers.agents, answers.facts, machines, look)


def _nobody_answers(name: str, answers: Answers) -> NodewrightError:
    if state.clusters() or name != DEFAULT_NAME:
        reachable(name)  # raises NotFound, which names the clusters that exist, or that it is stopped
    return Temporary(
        f"neither the API server nor an agent answers: API server: {answers.api}; {_silent(answers)}",
        obj=name,
        step="explain pods",
        action=f"{ours(name, 'status')} shows what is running. On a node, run this command as root.",
    )


def _unknown(name: str, wanted: Target, every: list[Explained], answers: Answers) -> NodewrightError:
    if wanted.kind in answers.unlisted:
        return answers.unlisted[wanted.kind]
    others = (Target(one.kind, one.found.namespace, one.found.name) for one in every)
    said = Wording(name).typed(meant(wanted, others))
    action = f"{said} {ours(name, 'why')} alone lists what is not well.".strip()
    where = wanted.name if wanted.kind == "node" else f"{wanted.namespace}/{wanted.name}"
    return NotFound(f'no {wanted.kind} "{where}"', step="explain", action=action)


async def with_more(sources: Sources, found: list[Explained], answers: Answers) -> list[Explained]:
    """With the ends of logs; one pod alone also with its resource costs, which a node adds only when it is asked."""
    bad = next((one for one in found if one.kind == "pod" and not one.is_well), None)
    alone = found[0] if len(found) == 1 and found[0].kind == "pod" else None
    first = alone or bad
    if first is None:
        return found
    costly, logged = await asyncio.gather(_costs(sources, first, answers, alone), _logs(sources, first, answers))
    return [replace(costly, logs=logged) if one is first else one for one in found]


async def _costs(sources: Sources, pod: Explained, answers: Answers, alone: Explained | None) -> Explained:
    one = pod.found
    node = next((node for node, pods in answers.agents.items() if any(each["uid"] == one.uid for each in pods)), None)
    if alone is None or node is None:
        return pod
    more = await sources.pod(node, one.namespace, one.name)
    if more is None or more["uid"] != one.uid:
        return pod
    return replace(pod, found=replace(pod.found, costs=from_json(more).costs))


async def _logs(sources: Sources, pod: Explained, answers: Answers) -> tuple[LogTail, ...]:
    obj = answers.facts.named("pod", pod.found.namespace, pod.found.name)
    wanted = logs.wanted(obj) if obj is not None else []
    texts = await asyncio.gather(*(sources.log(one) for one in wanted))
    tails = (logs.tail(one.container, text) for one, text in zip(wanted, texts, strict=True))
    return tuple(one for one in tails if one is not None)


def put(found: list[Explained], wanted: Target | None, page: show.Page, count: int, namespace: str | None) -> None:
    """Print what was found on the page."""
    if wanted is None and not found:
        where = "" if namespace is None else f" of namespace {namespace}"
        if namespace is not None and not count:
            listed = page.wording.typed("`kubectl get namespaces`")
            page.say(f"There are no pods{where}, and nothing else there is not well. {listed} lists namespaces.")
        else:
            page.say(f"All {count} pods{where} are running and ready, or have completed.")
    elif wanted is None or (found[0].kind == "pod" and len(found) > 1):
        show.many(found, page)
    else:
        show.one(found[0], page)
        show.pods_of(found[1:], page)


def document(found: list[Explained], answers: Answers, wording: Wording) -> dict[str, object]:
    """The same for programs."""
    documents = [
        {
            **to_json(wording.advised(one.found)),
            "kind": one.kind,
            "owner": one.owner,
            "said_by": "node" if one.by_node else "api",
            "logs": [{"container": tail.container, "lines": list(tail.lines)} for tail in one.logs],
            "refused": [as_json(drop) for drop in one.refused],
        }
        for one in found
    ]
    return {
        "pods": [one for one in documents if one["kind"] == "pod"],
        "objects": [one for one in documents if one["kind"] != "pod"],
        "api": answers.api or "answers",
        "silent": dict(answers.silent),
    }


def _notes(answers: Answers) -> None:
    for note in _said(answers):
        print(one_line(note, _LINE), file=sys.stderr)


def _said(answers: Answers) -> Iterator[str]:
    if not answers.api_answers:
        yield f"The API server does not answer ({answers.api}). These are the nodes' own answers."
    elif answers.unlisted:
        kinds = ", ".join(f"{kind}s: {error.message}" for kind, error in answers.unlisted.items())
        yield f"Not all of it could be asked for ({kinds})."
    if answers.silent:
        yield f"No answer from {_silent(answers)}."


def _silent(answers: Answers) -> str:
    return ", ".join(f"{node}: {why}" for node, why in answers.silent.items())
