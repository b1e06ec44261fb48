"""`nodewright why`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict

from rich.console import Console

from cli.clusters import find
from cli.display.terminal import new_console
from cli.why import judge, show
from cli.why.judge import Told
from cli.why.sources import Answers, ask, ask_for
from controlplane.edge import state
from nodelib.errors import NotFound, Temporary

_WIDE = 200


def run(name: str, pod: str, namespace: str, *, as_json: bool, kubeconfig: str = "") -> None:
    """Explain one pod, or without `pod` every pod that is not well. Raises NotFound, Temporary when nobody answers."""
    answers = asyncio.run(ask(name, kubeconfig))
    if not answers.agents and answers.pods is None:
        if state.clusters():
            find(name)  # another cluster was meant: the error names those that are here
        raise Temporary(
            f"nobody answers: API server: {answers.api}; {_silent(answers)}",
            obj=name,
            step="ask",
            action=f"`./nodewright status --name {name}` shows what runs; on a node run it as root.",
        )
    every = judge.told(answers.agents, answers.pods, answers.events)
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
        console.print(f"All {len(every)} pods are as they should be.")


def _console() -> Console:
    # Into a pipe or a file, lines need not fit a terminal.
    return new_console(width=None if sys.stdout.isatty() else _WIDE)


def _chosen(every: list[Told], pod: str, namespace: str) -> list[Told]:
    space, _, name = pod.removeprefix("pod/").removeprefix("pods/").rpartition("/")
    found = judge.matching(every, space or namespace, name)
    if not found:
        near = ", ".join(sorted({one.found.namespace for one in every if one.found.name == name}))
        action = f"It is in namespace {near}: add -n." if near else "`nodewright why` lists those that wait."
        raise NotFound(f'no pod "{space or namespace}/{name}"', step="explain", action=action)
    return found


def _with_costs(name: str, told: Told, answers: Answers) -> Told:
    """The same, as its node says it of this pod alone."""
    one = told.found
    node = next((node for node, pods in answers.agents.items() if any(pod["uid"] == one.uid for pod in pods)), None)
    more = asyncio.run(ask_for(name, node, one.namespace, one.name)) if node is not None else None
    return Told(judge.parse(more), True) if more is not None and more["uid"] == one.uid else told


def _document(found: list[Told], answers: Answers) -> dict[str, object]:
    pods = [{**asdict(one.found), "said_by": "node" if one.by_node else "api"} for one in found]
    return {"pods": pods, "api": answers.api or "answers", "silent": dict(answers.silent)}


def _notes(answers: Answers) -> None:
    if answers.pods is None:
        print(f"The API server does not answer ({answers.api}): this is the nodes' own word.", file=sys.stderr)
    if answers.silent:
        print(f"No word of {_silent(answers)}.", file=sys.stderr)


def _silent(answers: Answers) -> str:
    return ", ".join(f"{node}: {why}" for node, why in answers.silent.items())
