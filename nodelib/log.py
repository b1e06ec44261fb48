"""Logging of the daemons: one line per event, in UTC, to stderr, where the service manager collects it."""

from __future__ import annotations

import logging
import sys
import time


def setup(verbosity: int, component: str) -> None:
    """Set up the root logger. `verbosity` as klog's -v: 0 to 3 is INFO, 4 and more DEBUG."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter(f"%(asctime)s.%(msecs)03dZ %(levelname).1s {component} %(name)s: %(message)s")
    formatter.datefmt = "%Y-%m-%dT%H:%M:%S"
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity >= 4 else logging.INFO)
    for noisy in ("asyncio", "aiohttp.access", "pyroute2"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
