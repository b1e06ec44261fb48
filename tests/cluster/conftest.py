"""One cluster for all tests that only use it; tests of `up` and `down` raise their own.

NODEWRIGHT_TEST_CLUSTER=name uses an existing cluster, and leaves it running. With -n 2 --dist loadfile (pytest-xdist)
two workers share the files, and each has such a cluster; side_by_side.py has what that takes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from controlplane.cluster.model import Cluster
from nodelib.errors import NodewrightError
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from tests.cluster.command_line import RAISED, STATE, lent_or_raised
from tests.cluster.side_by_side import held, is_free, remove_left_over, shared_name, take_down_raised
from tests.cluster.world import World, holds

_LENT = ("NODEWRIGHT_TEST_CLUSTER", "NODEWRIGHT_TEST_POLICY", "NODEWRIGHT_TEST_BALANCER")
_BUSY = "Another run of the cluster tests is under way on this machine: wait until it ends."
_FIGURES: pytest.StashKey[list[tuple[str, str]]] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    if _has_workers(config):
        os.environ[RAISED] = folder = tempfile.mkdtemp(prefix="nodewright-tests-raised-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_sessionstart(session: pytest.Session) -> None:
    if _has_workers(session.config) and _locks() and not is_free():
        pytest.exit(_BUSY, 1)


@pytest.fixture(scope="session", autouse=True)
def alone_on_this_machine(testrun_uid: str) -> Iterator[None]:
    """Two runs at once would take each other's clusters away: their names are the same, so that a run that was killed
    leaves nothing that the next one does not remove."""
    if not _locks():
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            first = stack.enter_context(held(testrun_uid))
        except BlockingIOError:
            pytest.exit(_BUSY, 1)
        if first:
            remove_left_over(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
        yield


def _locks() -> bool:
    return os.geteuid() == 0 and not any(name in os.environ for name in _LENT)


def _has_workers(config: pytest.Config) -> bool:
    """Whether this process runs no test itself, and has workers that do."""
    return bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")


@pytest.fixture(scope="session")
def shared_cluster(worker_id: str) -> Iterator[Cluster]:
    """Two nodes, no way out of the machine, the demo."""
    with lent_or_raised("NODEWRIGHT_TEST_CLUSTER", shared_name(worker_id), "--no-uplink", timeout=1800) as cluster:
        yield cluster


@pytest.fixture
async def world(
    request: pytest.FixtureRequest, shared_cluster: Cluster, stats: list[tuple[str, str]]
) -> AsyncIterator[World]:
    """The cluster, and a namespace of the test's own which goes away with it."""
    api = KubeClient(load_kubeconfig(shared_cluster.admin_kubeconfig), user_agent="nodewright-tests", timeout=120)
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails says on which cluster: each worker has its own."""
    report = yield
    if report.failed:
        used = [getattr(one, "cluster", one) for one in getattr(item, "funcargs", {}).values()]
        names = sorted({one.name for one in used if isinstance(one, Cluster)})
        report.sections += [("cluster", f"{name}: {STATE / name}") for name in names]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
    config = session.config
    if hasattr(config, "workerinput"):
        config.workeroutput["figures"] = config.stash.get(_FIGURES, [])  # type: ignore[attr-defined]
    yield
    if _has_workers(config) and exitstatus == pytest.ExitCode.INTERRUPTED:
        for name in take_down_raised():
            print(f"\ninterrupted: took down {name}", end="")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended: what it measured belongs into the one table."""
    rows = getattr(node, "workeroutput", {}).get("figures", [])
    node.config.stash.setdefault(_FIGURES, []).extend(rows)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash.get(_FIGURES, [])
    if rows:
        width = max(len(what) for what, _ in rows)
        terminalreporter.section("measured on the cluster")
        for what, value in rows:
            terminalreporter.write_line(f"{what:{width}}  {value}")
