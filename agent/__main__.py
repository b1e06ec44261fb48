"""`python -m agent`: the agent, with upstream's flags."""

from __future__ import annotations

import sys

from agent.app import main
from nodelib.daemons.process_name import answer_to

if __name__ == "__main__":
    answer_to("kubelet", sys.argv[1:])
    sys.exit(main())
