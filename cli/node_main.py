"""`python -m cli.node_main`: runs cli/node_agent.py, which is imported without garbage collection.

That saves a tenth of the agent's start.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nodelib.daemons import memory
from nodelib.daemons.process_name import answer_to

NAME = "kubelet"


def main(argv: Sequence[str] | None = None, *, pod_network: str = "nodewright") -> int:
    """As main() of cli/node_agent.py."""
    memory.rest_collector()
    from cli.node_agent import main as run  # a thousand modules and classes, which the collector need not visit

    return run(argv, pod_network=pod_network)


if __name__ == "__main__":
    answer_to(NAME, sys.argv[1:])
    sys.exit(main())
