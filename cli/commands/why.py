"""`nodewright why`: asks the agents and the API server, and prints one pod or all with a problem."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from rich.console import Console

from agent.explain.plan.document import from_json, to_json
from cli.clusters import find
from cli.display.terminal import new_console
from cli.why import judge, show
from cli.why.judge import Explained
from cli.why.sources import Answers, ask, ask_for
from controlplane.cluster.edge import state
from nodelib.errors import NotFound, Temporary

_WIDE = 200


def run(name: str, pod: str, namespace: str, *, as_json: bool, kubeconfig: str = "") -> None:
    """Explain one pod, or without `pod` every pod with a problem.

    Raises NotFound for an unknown pod, Temporary when neither the API server nor an agent answers.
    """
    answers = asyncio.run(ask(name, kubeconfig))
    if not answers.agents and answers.pods is None:
        if state.clusters():
            find(name)  # raises NotFound, which names the clusters that exist
        raise Temporary(
            f"neither the API server nor an agent answers: API server: {answers.api}; {_silent(answers)}",
            obj=name,
            step="explain pods",
            action=f"`./nodewright status --name {name}` shows what is running. On a node, run this command as root.",
        )
    every = judge.explained(answers.agents, answers.pods, answers.events)
    found = _chosen(every, pod, namespace) if pod else [one for one in every if not one.is_well]
    if pod and len(found) == 1:
        found = [_with_costs(name, found[0], answers)]
    if as_json:
        print(json.dumps(_document(found, answers), indent=1))
        return
    _notes(answers)
    console, now = _console(), time.time()
    if pod and len(found) == 1:
        show.one(found[0], now, console)
    elif found:
        show.many(found, now, console)
    else:
        console.print(f"All {len(every)} pods are running and ready, or have completed.")


def _console() -> Console:
    # In a pipe or a file, lines need not fit a terminal.
    return new_console(width=None if sys.stdout.isatty() else _WIDE)


def _chosen(every: list[Explained], pod: str, namespace: str) -> list[Explained]:
    space, _, name = pod.removeprefix("pod/").removeprefix("pods/").rpartition("/")
    found = judge.matching(every, space or namespace, name)
    if not found:
        near = ", ".join(sorted({one.found.namespace for one in every if one.found.name == name}))
        action = f"It is in namespace {near}; add -n." if near else "`./nodewright why` lists the pods with a problem."
        raise NotFound(f'no pod "{space or namespace}/{name}"', step="explain", action=action)
    return found


def _with_costs(name: str, pod: Explained, answers: Answers) -> Explained:
    """The pod with its resource costs, which a node adds only when it is asked about one pod."""
    one = pod.found
    node = next((node for node, pods in answers.agents.items() if any(each["uid"] == one.uid for each in pods)), None)
    more = asyncio.run(ask_for(name, node, one.namespace, one.name)) if node is not None else None
    return Explained(from_json(more), True) if more is not None and more["uid"] == one.uid else pod


def _document(found: list[Explained], answers: Answers) -> dict[str, object]:
    pods = [{**to_json(one.found), "said_by": "node" if one.by_node else "api"} for one in found]
    return {"pods": pods, "api": answers.api or "answers", "silent": dict(answers.silent)}


def _notes(answers: Answers) -> None:
    if answers.pods is None:
        print(f"The API server does not answer ({answers.api}). These are the nodes' own answers.", file=sys.stderr)
    if answers.silent:
        print(f"No answer from {_silent(answers)}.", file=sys.stderr)


def _silent(answers: Answers) -> str:
    return ", ".join(f"{node}: {why}" for node, why in answers.silent.items())
