"""The file with the addresses that this node announces, on a file system in memory: it ends with the node.

A daemon that is started again answers by it before the API server has said anything.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from loadbalancer.model import Address
from nodelib import files
from nodelib.addresses import parse_address
from nodelib.json_values import compact, decode

log = logging.getLogger(__name__)

_LARGEST = 1 << 20


class HeldFile:
    """Read once at the start, written when the table gives this node other addresses."""

    def __init__(self, path: str) -> None:
        self._path = path

    def load(self) -> frozenset[Address]:
        """Nothing if there is no such file, or if it cannot be read."""
        try:
            with open(self._path, "rb", opener=files.no_link) as file:
                found = decode(file.read(_LARGEST))
            return frozenset(map(parse_address, found if isinstance(found, list) else []))
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError) as error:
            log.warning("%s: %s; addresses are announced again when the API server answers", self._path, error)
            return frozenset()

    def save(self, addresses: Iterable[Address]) -> None:
        """A failure is logged: it delays a later start, and nothing else."""
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o755, exist_ok=True)
            files.replace(self._path, compact(sorted(map(str, addresses))))
        except OSError as error:
            log.warning("%s: %s", self._path, error)
