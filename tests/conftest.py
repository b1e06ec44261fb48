"""Settings for every test."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# Pass or fail never depends on how fast the machine is.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

_OWN = pytest.StashKey[str]()

# Seconds for one test with its fixtures, by folder: far more than any takes, so that one that hangs fails with the
# stacks of its threads and the others still run. The first one that needs a program compiles it.
_LIMITS = {"unit": 300, "netns": 2400, "cluster": 2400, "conformance": 3000}


def pytest_configure(config: pytest.Config) -> None:
    """Clusters of tests get a kubeconfig of their own: the one of whoever runs the tests is not theirs to change."""
    with contextlib.suppress(ValueError):  # a worker of pytest-xdist may not have the main thread
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: clusters go first
    config.stash[_OWN] = tempfile.mkdtemp(prefix="nodewright-tests-")
    os.environ["NODEWRIGHT_KUBECONFIG"] = os.path.join(config.stash[_OWN], "config")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        limit = _LIMITS.get(item.path.relative_to(here).parts[0]) if item.path.is_relative_to(here) else None
        if limit and not item.get_closest_marker("soak") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(limit))


def pytest_collection_finish() -> None:
    """Ten thousand tests are half a gigabyte of objects: no collection of garbage goes through them after this."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_OWN], ignore_errors=True)
