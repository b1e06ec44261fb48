"""What policies cost connections between two pods of a node: `python -m tests.bench.policy_flows [COUNT ...]` as root.

Each COUNT is a number of policies that select the server's pod, the last of which allows the client; 0 is a node
without any. With COUNT/FEW only FEW of them select that pod, and the others another one of the node. It prints what a
connect and a round trip of one byte take, and how many bytes pass in a second; in parentheses as a multiple of the
first COUNT's time, or of the time for a byte: 1.00 is no cost. All are low percentiles, the best of ROUNDS rounds that
take turns: what else runs on the machine shall not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from nodelib.json_values import Json
from tests.builders.policies import apps, block, policy
from tests.netns.policy_world import PolicyWorld
from tests.netns.test_policy_packets import ONE, PODS, SPACES
from tests.netns.test_proxy_packets import POD1, POD2

ROUNDS = int(os.environ.get("ROUNDS", "5"))
_PEER = str(Path(__file__).with_name("flow_peer.py"))


def policies(count: int, few: int) -> list[Json]:
    """The last in the order of the names allows the client, the others somebody else."""
    if not count:
        return []
    selected = [{"app": "two"}] * (count - few) + [ONE] * (few - 1)
    others = [
        policy(f"p{number:04}", select=one, ingress=[{"from": [block(f"192.0.2.{number % 256}/32")]}])
        for number, one in enumerate(selected)
    ]
    return [*others, policy("z", select=ONE, ingress=[{"from": [apps("two")]}])]


def main(counts: list[str]) -> None:
    world = PolicyWorld()
    try:
        server = world.pods[POD1].start(sys.executable, "-IS", _PEER, "serve", stdout=subprocess.PIPE)
        assert server.stdout is not None and server.stdout.readline() == b"READY\n"
        found: dict[str, dict[str, list[float]]] = {count: {} for count in counts}
        for _ in range(ROUNDS):
            for count in counts:
                number, _, few = count.partition("/")
                world.apply(PODS, policies(int(number), int(few or number)), SPACES)
                done = world.pods[POD2].run(sys.executable, "-IS", _PEER, "ask", POD1)
                for key, value in json.loads(done.stdout).items():
                    found[count].setdefault(key, []).append(value)
    finally:
        world.close()
    best = {count: {key: min(values) for key, values in one.items()} for count, one in found.items()}
    for count, one in best.items():
        cost = {key: f"({value / best[counts[0]][key]:.2f})" for key, value in one.items()}
        times = [f"{name} {one[name] * 1e6:.1f} us {cost[name]}" for name in ("connect", "trip")]
        rate = f"{8e-9 / one['second']:.2f} Gbit/s {cost['second']}"
        print(f"{count:>6} policies: {', '.join(times)}, {rate}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["0", "10", "1000", "1000/1"])
