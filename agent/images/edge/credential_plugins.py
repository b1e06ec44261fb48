"""Credential provider plugins: reads the file that configures them and runs their programs. Decides nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from nodelib import safe_yaml
from nodelib.command import CommandError, run
from nodelib.errors import Invalid, Temporary

_LIMIT = 60.0  # seconds; upstream's pluginExecTimeout
_MOST = 1 << 20  # bytes; an answer has a few hundred. Upstream reads whatever comes


class CredentialPlugins:
    """images/work/pull_credentials.py Plugins. `folder`: the directory of the programs.

    `ran(name, seconds, failed)`: one has ended.
    """

    def __init__(
        self, folder: str, ran: Callable[[str, float, bool], None] = lambda name, seconds, failed: None
    ) -> None:
        self._folder, self._ran = folder, ran

    async def ask(self, name: str, args: Sequence[str], env: Mapping[str, str], text: str) -> str:
        """The plugin's answer to the request `text`. Raises Temporary."""
        program, began, failed = os.path.join(self._folder, name), time.monotonic(), True
        try:
            environment = {**os.environ, **env}
            done = await run([program, *args], stdin=text.encode(), env=environment, timeout=_LIMIT, most=_MOST)
            failed = False
        except CommandError as error:
            raise Temporary(error.message, obj=program, step="ask for credentials") from error
        finally:
            self._ran(name, time.monotonic() - began, failed)
        return done.text


def read(path: str) -> Any:
    """The decoded configuration file. Raises Invalid."""
    try:
        return safe_yaml.load_file(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Invalid(
            str(error),
            obj=f"--image-credential-provider-config {path}",
            step="read credential provider plugins",
            action="Check the path, and that it is a YAML or JSON file.",
        ) from error
