"""What upstream's version skew policy says of a node and an API server."""

from __future__ import annotations

import pytest

from nodelib.errors import Permanent
from nodelib.kube.skew import version_skew
from nodelib.version import KUBERNETES_MINOR, KUBERNETES_VERSION, skew


@pytest.mark.parametrize(
    ("node", "server", "words"),
    [
        pytest.param("v1.37.1", "v1.37.1", "", id="equal"),
        pytest.param("v1.37.1", "v1.37.0-rc.1", "", id="patches do not count"),
        pytest.param("v1.37.1", "v1.40.2", "", id="three behind"),
        pytest.param("v1.37.1", "v1.41.0", "more than 3 minor versions older", id="four behind"),
        pytest.param("v1.37.1", "v1.36.3", "newer than the API server, v1.36.3", id="newer"),
        pytest.param("v1.37.1", "v1.36.3+k3s1", "newer", id="a distribution's"),
        pytest.param("v1.9.0", "v1.10.0", "", id="numbers, not text"),
        pytest.param("v1.37.1", "", "", id="unknown"),
    ],
)
def test_skew(node: str, server: str, words: str) -> None:
    assert words in skew(node, server) if words else skew(node, server) == ""


def test_the_two_words_are_of_one_release() -> None:
    assert KUBERNETES_VERSION.startswith(f"v{KUBERNETES_MINOR}.")


class Server:
    """Answers for /version once it was asked `refusals` times, as in a new cluster without its roles."""

    def __init__(self, version: str, refusals: int) -> None:
        self.version, self.refusals = version, refusals

    async def get(self, path: str) -> dict[str, str]:
        assert path == "/version"
        self.refusals -= 1
        if self.refusals >= 0:
            raise Permanent("forbidden")
        return {"gitVersion": self.version}


class NoWait:
    """A clock on which all sleeps are over at once."""

    async def sleep(self, seconds: float) -> None:
        return


@pytest.mark.parametrize(
    ("server", "refusals", "lines"),
    [("v1.36.3", 0, 1), ("v1.36.3", 3, 1), (KUBERNETES_VERSION, 0, 0), ("v1.36.3", 10_000, 0)],
    ids=["skewed", "skewed, in a new cluster", "equal", "never known"],
)
async def test_it_is_logged_once(server: str, refusals: int, lines: int, caplog: pytest.LogCaptureFixture) -> None:
    found = await version_skew(Server(server, refusals), NoWait())  # type: ignore[arg-type]
    assert bool(found) == bool(lines)
    assert len([one for one in caplog.records if one.levelname == "WARNING"]) == lines
