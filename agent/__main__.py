"""`python -m agent`: the agent, with upstream's flags."""

from __future__ import annotations

import sys

from agent.app import main

if __name__ == "__main__":
    sys.exit(main())
