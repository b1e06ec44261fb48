"""Logging of the daemons: one line an event, UTC, to stderr (the service manager keeps it)."""

from __future__ import annotations

import logging
import sys
import time


def setup(verbosity: int, component: str) -> None:
    """`verbosity` as klog's -v: 0 to 3 information, 4 and more debug."""
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
