"""The registry logins of the node itself: config.json and .dockercfg, as `docker login` or an administrator left them.

The paths and their order are upstream's (pkg/credentialprovider/config.go). Blocks on files: call it in a thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

log = logging.getLogger(__name__)


class NodeLogins:
    """`root_dir`: the agent's own directory, which comes first; `home`: the home directory of the agent's user."""

    def __init__(self, root_dir: str, home: str) -> None:
        self._current = [*(f"{folder}/config.json" for folder in (root_dir, ".", f"{home}/.docker", "/.docker"))]
        self._legacy = [*(f"{folder}/.dockercfg" for folder in (root_dir, ".", home, ""))]

    def read(self) -> Iterator[tuple[str, bytes]]:
        """(path, content) of the files that exist, in order of precedence. They may change at any time."""
        for path in (*self._current, *self._legacy):
            try:
                with open(path, "rb") as file:
                    yield os.path.abspath(path), file.read()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                log.warning("logins of the node: %s: %s", path, error.strerror)
