"""The file with addresses that pods have been given. It is on a file system in memory, as the pods' links are."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from nodelib import files
from nodelib.addresses import parse_address
from nodelib.errors import Temporary
from nodelib.json_values import compact, decode, objects_in
from policy.model import Address, Name

log = logging.getLogger(__name__)

_LARGEST = 1 << 20


class HeldFile:
    """Read once at the start, written for each pod that starts."""

    def __init__(self, path: str) -> None:
        self._path = path

    def load(self) -> dict[Name, tuple[str, tuple[Address, ...]]]:
        """What was saved; nothing if there is no such file, or if it cannot be read."""
        try:
            with open(self._path, "rb") as file:
                entries = objects_in(decode(file.read(_LARGEST)))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("%s: %s; pods whose status has no address yet wait for it", self._path, error)
            return {}
        found = {}
        for one in entries:
            try:
                addresses = tuple(map(parse_address, one["addresses"]))
                found[Name(str(one["namespace"]), str(one["name"]))] = (str(one["uid"]), addresses)
            except (KeyError, TypeError, ValueError):
                log.warning("%s: an entry is not readable", self._path)
        return found

    def save(self, held: Mapping[Name, tuple[str, tuple[Address, ...]]]) -> None:
        """Raises Temporary."""
        entries = [
            {"namespace": name.namespace, "name": name.name, "uid": uid, "addresses": list(map(str, addresses))}
            for name, (uid, addresses) in held.items()
        ]
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o755, exist_ok=True)
            files.replace(self._path, compact(entries))
        except OSError as error:
            raise Temporary(str(error), obj=self._path, step="save", action="Make room there.") from error
