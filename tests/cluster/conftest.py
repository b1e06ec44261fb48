"""One cluster for all tests that only use it; tests of `up` and `down` raise their own.

NODEWRIGHT_TEST_CLUSTER=name uses an existing cluster, and leaves it running.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from controlplane.cluster.model import Cluster
from nodelib.errors import NodewrightError
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from tests.cluster.command_line import lent_or_raised
from tests.cluster.world import World, holds

_LENT = ("NODEWRIGHT_TEST_CLUSTER", "NODEWRIGHT_TEST_POLICY", "NODEWRIGHT_TEST_BALANCER")
_FIGURES: pytest.StashKey[list[tuple[str, str]]] = pytest.StashKey()


@pytest.fixture(scope="session", autouse=True)
def alone_on_this_machine() -> Iterator[None]:
    """Two runs at once would take each other's clusters away: their names are the same, so that a run that was killed
    leaves nothing that the next one does not remove."""
    if os.geteuid() != 0 or any(name in os.environ for name in _LENT):
        yield
        return
    with open("/run/nodewright-cluster-tests.lock", "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.exit("Another run of the cluster tests is under way on this machine: wait until it ends.", 1)
        yield


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    """Two nodes, no way out of the machine, the demo."""
    with lent_or_raised("NODEWRIGHT_TEST_CLUSTER", "tres", "--no-uplink", timeout=1800) as cluster:
        yield cluster


@pytest.fixture
async def world(
    request: pytest.FixtureRequest, shared_cluster: Cluster, stats: list[tuple[str, str]]
) -> AsyncIterator[World]:
    """The cluster, and a namespace of the test's own which goes away with it."""
    api = KubeClient(load_kubeconfig(shared_cluster.admin_kubeconfig), user_agent="nodewright-tests")
    words = request.node.originalname.removeprefix("test_").replace("_", "-")[:40].strip("-")
    namespace = f"{words}-{uuid.uuid4().hex[:5]}"
    path = f"/api/v1/namespaces/{namespace}"
    try:
        await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})

        async def account() -> object:
            return await api.get(f"{path}/serviceaccounts/default")

        await holds(account, "the namespace has its service account")
        yield World(shared_cluster, api, namespace, stats)
    finally:
        with contextlib.suppress(NodewrightError):
            await api.delete(path)
        await api.close()


@pytest.fixture
def stats(request: pytest.FixtureRequest) -> list[tuple[str, str]]:
    """Measured values, (what, value), shown in one table at the end."""
    return request.config.stash.setdefault(_FIGURES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash.get(_FIGURES, [])
    if rows:
        width = max(len(what) for what, _ in rows)
        terminalreporter.section("measured on the cluster")
        for what, value in rows:
            terminalreporter.write_line(f"{what:{width}}  {value}")
