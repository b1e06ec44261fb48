"""What is measured of one maker, all of it by packets that pass or do not.

- enforced: from the start of its process, with everything in the API, until the last packet has passed that policies
  forbid. What they allow passes afterwards.
- a policy or a label changed: from sending the PATCH until the first packet passes that is allowed now, or the last has
  passed that no longer is. That holds the API server, the watch, the maker and the kernel, and is exact to a
  millisecond, in which one packet is sent.
- the path: from a client to a pod of the same node, by `tests/bench/flow_peer.py`, all makers in turn.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from nodelib import command
from nodelib.clock import Clock
from nodelib.errors import Temporary
from nodelib.kube.client import KubeClient
from tests.bench.policy_peers import objects
from tests.bench.policy_peers.objects import OF_NAMESPACE, PORT, ROLES
from tests.bench.policy_peers.subject import Subject
from tests.bench.policy_peers.world import FLOW_PEER, Where

_COLD_LIMIT = 400.0
_CHANGE_LIMIT = 60.0
_REST = 0.05  # seconds between two changes
SETTLED = 3.0  # seconds after a first sync, and until what an ended process had is freed
_OTHER_PORT = 10_000
_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Effort:
    """`changes` of each kind, but no more after `budget` seconds."""

    policies: int = 1000
    pods: int = 250
    changes: int = 50
    budget: float = 150.0
    rounds: int = 5

    @property
    def spaces(self) -> int:
        return self.pods // OF_NAMESPACE


@dataclass(slots=True)
class Found:
    """Of one maker: single values, and those of which there are many, by the names of `table.py`."""

    values: dict[str, float] = field(default_factory=dict)
    many: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def of_namespace(number: int, port: int = PORT) -> Where:
    """The first pod of that namespace."""
    return objects.address(OF_NAMESPACE * number), port


async def enforced(subject: Subject, effort: Effort, selected: Sequence[str]) -> float:
    """Start it. Seconds until all that is forbidden is refused. Raises Temporary, Permanent."""
    others = [of_namespace(space) for space in range(1, effort.spaces, 11) if space % ROLES]
    return await _started(subject, selected, others, of_namespace(0))


async def enforced_on_one(subject: Subject, policies: int) -> None:
    """Start it in the content objects.on_one(), and wait until the pod is isolated, if it shall be."""
    if policies:
        pod = objects.address(0)
        await _started(subject, (pod,), [(pod, PORT)], (pod, objects.FLOW_PORT))
    else:
        await subject.start(())
        await subject.settle(SETTLED)


async def _started(subject: Subject, selected: Sequence[str], forbidden: Sequence[Where], allowed: Where) -> float:
    await subject.prober.watch(forbidden, (), _COLD_LIMIT)
    await subject.start(selected)
    times = await subject.prober.times()
    subject.check()
    last = max(_all(subject, times, "enforce policies"))
    # One that decides in a process of its own may have a second's packets before it.
    for _ in range(_LOOKS):
        passes = await subject.prober.passes([*forbidden, allowed])
        if passes == [False] * len(forbidden) + [True]:
            return last - subject.started
        await subject.settle(SETTLED)
    raise Temporary(f"{forbidden} and {allowed}: {passes}", obj=subject.maker.name, step="see what passes")


async def changed_policies(subject: Subject, client: KubeClient, effort: Effort, clock: Clock, found: Found) -> None:
    """Another port for one policy after the other, and the former one again."""
    ours = range(0, effort.policies, ROLES)  # they let the client in
    began = clock.monotonic()
    for turn in range(effort.changes):
        if clock.monotonic() - began > effort.budget:
            break
        number, port = ours[turn * 37 % len(ours)], _OTHER_PORT + turn
        path, where = objects.policy_path(number, effort.spaces), of_namespace(number % effort.spaces, port)
        for kind, ingress in (
            ("policy allows", objects.ingress(number, port)),
            ("policy forbids", objects.ingress(number)),
        ):
            closed, opened = ((), (where,)) if kind == "policy allows" else ((where,), ())
            await subject.prober.watch(closed, opened, _CHANGE_LIMIT)
            sent = clock.monotonic()
            await client.patch(path, {"spec": {"ingress": ingress}})
            times = _all(subject, await subject.prober.times(), kind)
            found.many[kind] += [max(0.0, one - sent) for one in times]
            await clock.sleep(_REST)


async def changed_labels(subject: Subject, client: KubeClient, effort: Effort, clock: Clock, found: Found) -> None:
    """Another role for the client: one namespace ceases to let it in, and another begins to."""
    began = clock.monotonic()
    # Whole rounds of roles: at the end it has the first again.
    for turn in range(1, effort.changes // ROLES * ROLES + 1):
        before, now = of_namespace((turn - 1) % ROLES), of_namespace(turn % ROLES)
        await subject.prober.watch((before,), (now,), _CHANGE_LIMIT)
        sent = clock.monotonic()
        await client.patch(objects.CLIENT_PATH, {"metadata": {"labels": {"role": f"r{turn % ROLES}"}}})
        last, first = _all(subject, await subject.prober.times(), "label")
        found.many["label forbids"].append(max(0.0, last - sent))
        found.many["label allows"].append(max(0.0, first - sent))
        await clock.sleep(_REST)
        if turn % ROLES == 0 and clock.monotonic() - began > effort.budget:
            break


async def path(subject: Subject, key: str, found: Found) -> None:
    """One turn; `key` is added to the names of the values."""
    argv = subject.world.client.inside(sys.executable, "-IS", FLOW_PEER, "ask", objects.address(0))
    done = await command.run(argv, timeout=120)
    for name, value in json.loads(done.stdout).items():
        found.many[f"{name}, {key}"].append(value)


def _all(subject: Subject, times: Sequence[float | None], step: str) -> list[float]:
    there = [one for one in times if one is not None]
    if len(there) < len(times):
        raise Temporary(f"not within the limit: {times}", obj=subject.maker.name, step=step)
    return there
