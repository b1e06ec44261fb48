"""`python -m cli.node_main`: cli/node_agent.py, imported while the collector rests: a tenth of the agent's start."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nodelib import memory


def main(argv: Sequence[str] | None = None, *, pod_network: str = "nodewright") -> int:
    """See cli/node_agent.py."""
    memory.rest_collector()
    from cli.node_agent import main as run  # a thousand modules and classes: what the collector shall not look at

    return run(argv, pod_network=pod_network)


if __name__ == "__main__":
    sys.exit(main())
