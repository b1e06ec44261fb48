"""What a hook writes goes into the pod's status, Events and the log: a little of it, once, on one line."""

from __future__ import annotations

from typing import Any

import pytest

from agent.common.model.errors import CriError
from agent.common.model.pods import ExecResult, Pod
from agent.pods.work.hooks import Hooks
from nodelib.clock import SystemClock
from nodelib.errors import Permanent, Temporary
from nodelib.text import one_line

POD = Pod({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}})


class Runtime:
    def __init__(self, result: ExecResult) -> None:
        self._result = result

    async def exec_sync(self, container_id: str, argv: list[str], timeout: float) -> ExecResult:
        return self._result


class Loud(Runtime):
    async def exec_sync(self, container_id: str, argv: list[str], timeout: float) -> ExecResult:
        raise CriError("Received message larger than max", code="RESOURCE_EXHAUSTED")


class Http:
    async def get(self, url: str, headers: Any, *, pod: str = "") -> None:
        raise Temporary("refused: " + "\x00" * (16 << 20))


async def _fail(hook: dict[str, Any], result: ExecResult | None = None) -> str:
    hooks = Hooks(Runtime(result), Http(), SystemClock())  # type: ignore[arg-type]
    with pytest.raises(Permanent) as found:
        await hooks.run(POD, {"name": "c"}, "id", hook, ("127.0.0.1",))
    return str(found.value)


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(ExecResult(1, b"\x00" * (16 << 20), b""), id="NULs"),
        pytest.param(ExecResult(1, b"\n2026-01-01T00:00:00Z I agent: forged", b"y" * (16 << 20)), id="a forged line"),
        pytest.param(ExecResult(1, b"", b"\x1b[2J" * (4 << 20)), id="escapes of a terminal"),
        pytest.param(ExecResult(1, b"\xff" * (16 << 20), b""), id="no UTF-8"),
    ],
)
async def test_16_mib_of_output(result: ExecResult) -> None:
    text = await _fail({"exec": {"command": ["sh", "-c", "z" * (1 << 20)]}}, result)
    assert len(text.encode()) < 2048
    assert text == one_line(text, 2048)


async def test_a_short_output_is_whole() -> None:
    text = await _fail({"exec": {"command": ["x", "y"]}}, ExecResult(3, b"out\n", b'"err"'))
    assert text == (
        'Exec lifecycle hook (x y) for Container "c" in Pod "p_n(u)" failed: '
        'error: command \'x y\' exited with 3, message: "out\\n"err""'
    )


async def test_16_mib_of_an_answer() -> None:
    text = await _fail({"httpGet": {"port": 80, "path": "/" + "z" * (1 << 20)}})
    assert len(text.encode()) < 2048 and "\x00" not in text


async def test_a_command_that_writes_more_than_is_taken_has_ended() -> None:
    hooks = Hooks(Loud(ExecResult(0, b"", b"")), Http(), SystemClock())  # type: ignore[arg-type]
    await hooks.run(POD, {"name": "c"}, "id", {"exec": {"command": ["x"]}}, ())
