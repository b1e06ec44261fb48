"""Parts of pyroute2, imported without the rest of it.

Its `__init__` imports every protocol that it knows: 0.1 s, and 10 MB of resident memory in each daemon.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_NAME = "pyroute2"


class _Package(ModuleType):
    """Stands in for the package. The first use of anything but its parts imports the whole package in its place."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if name.startswith("__") or spec is None or spec.loader is None or self.__dict__.get("_whole"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if importlib.util.find_spec(f"{_NAME}.{name}") is not None:  # `from pyroute2 import netns`
            return importlib.import_module(f"{_NAME}.{name}")
        self._whole = True
        spec.loader.exec_module(self)
        return getattr(self, name)


def part(name: str) -> Any:
    """The module `name` of the package, such as "netlink.rtnl.rtmsg". Raises ImportError."""
    spec = importlib.util.find_spec(_NAME) if _NAME not in sys.modules else None
    if spec is not None:  # otherwise it is imported already, or the import below fails because it is missing
        package = _Package(_NAME)
        package.__spec__, package.__path__ = spec, list(spec.submodule_search_locations or ())
        package.__file__, package.__loader__ = spec.origin, spec.loader
        package.__package__ = _NAME
        sys.modules[_NAME] = package
        importlib.import_module(f"{_NAME}.config")  # ifinfmsg asks the package itself for it
    return importlib.import_module(f"{_NAME}.{name}")
