"""A kubelet's server in a process of its own, so that its memory can be measured: `python -m … FOLDER SECONDS`.

Prints its port. Writes how long its loop was held at most, and how many TokenReviews ran, to FOLDER/report. The only
user with rights is the certificate in FOLDER/admin.crt; the token "slow…" is reviewed for ever.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.server.edge.listeners import Listeners
from nodelib.connections.limits import ConnectionLimits
from nodelib.daemons import memory
from nodelib.event_loop import Loop
from tests.fakes.agent_view import add_pod
from tests.unit.agent.server.conftest import Authority, Bench, Reviewer


class SlowReviewer(Reviewer):
    running = most = 0

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if not path.endswith("tokenreviews"):
            return await super().post(path, body)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(3600 if body["spec"]["token"].startswith("slow") else 0.05)
            return await super().post(path, body)
        finally:
            self.running -= 1


async def serve(folder: Path, seconds: float) -> None:
    reviewer = SlowReviewer()
    bench = Bench(folder, Authority(folder, "ca"), reviewer=reviewer)
    add_pod(bench.view, "web", "u1")
    bench.admin()
    limits = ConnectionLimits(seconds=seconds)
    await bench.start(bench.settings(), edges=lambda edges: replace(edges, listeners=Listeners(limits)))
    assert bench.server is not None
    print(bench.server.addresses["kubelet"][1], flush=True)
    longest, written, last = 0.0, 0.0, time.monotonic()
    while True:
        await asyncio.sleep(0.01)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        if now - written > 0.2:
            written = now
            reviews = len([kind for kind, _ in reviewer.calls if kind == "tokenreviews"])
            draft = folder / "report.new"
            draft.write_text(json.dumps({"stall": longest, "reviews": reviews, "most": reviewer.most}))
            draft.rename(folder / "report")


if __name__ == "__main__":
    memory.settle_allocator()
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(serve(Path(sys.argv[1]), float(sys.argv[2])))
