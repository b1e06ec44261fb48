"""Settings for every test."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest
from hypothesis import settings

# Pass or fail never depends on how fast the machine is.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

_OWN = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Clusters of tests get a kubeconfig of their own: the one of whoever runs the tests is not theirs to change."""
    config.stash[_OWN] = tempfile.mkdtemp(prefix="nodewright-tests-")
    os.environ["NODEWRIGHT_KUBECONFIG"] = os.path.join(config.stash[_OWN], "config")


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_OWN], ignore_errors=True)
