"""Run one test in a child process with its own mount namespace: its mounts end with it."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_PRIVATE = 16384, 1 << 18


def isolated(test: Callable[..., None]) -> Callable[..., None]:
    """The test must not be async (it may call asyncio.run). A failure comes back with its traceback."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        if os.geteuid() != 0:
            pytest.skip("needs root: mounts")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os._exit(_child(writing, lambda: test(*args, **kwargs)))
        os.close(writing)
        with os.fdopen(reading, "r") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        if status != 0:
            pytest.fail(said or f"the child ended with status {status}", pytrace=False)

    return run


def _child(writing: int, work: Callable[[], None]) -> int:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) != 0:
            raise OSError(ctypes.get_errno(), "cannot make a mount namespace")
        work()
    except BaseException:
        os.write(writing, traceback.format_exc()[-30000:].encode())
        return 1
    finally:
        sys.stdout.flush()
        os.close(writing)
    return 0
