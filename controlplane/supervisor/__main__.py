"""`python -S -m controlplane.supervisor DIR`: see work.py."""

from __future__ import annotations

import sys

from controlplane.supervisor.work import main

if __name__ == "__main__":
    sys.exit(main())
