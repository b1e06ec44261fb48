"""pyroute2's rtnetlink message classes, imported without the rest of pyroute2.

Its `__init__` imports every protocol that it knows, 10 MB of resident memory in each daemon; rtnetlink's messages need
a tenth of that.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_NAME = "pyroute2"
_PARTS = (
    "config",  # first: ifinfmsg asks the package itself for it
    "netlink",
    "netlink.rtnl.ifaddrmsg",
    "netlink.rtnl.ifinfmsg",
    "netlink.rtnl.ndmsg",
    "netlink.rtnl.rtmsg",
)


class _Package(ModuleType):
    """Stands in for the package. The first use of anything but the parts imports the whole package in its place."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if name.startswith("__") or spec is None or spec.loader is None or self.__dict__.get("_whole"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self._whole = True
        spec.loader.exec_module(self)
        return getattr(self, name)


def _parts() -> dict[str, Any]:
    spec = importlib.util.find_spec(_NAME) if _NAME not in sys.modules else None
    if spec is not None:  # otherwise it is imported already, or the import below fails because it is missing
        package = _Package(_NAME)
        package.__spec__, package.__path__ = spec, list(spec.submodule_search_locations or ())
        package.__file__, package.__loader__ = spec.origin, spec.loader
        package.__package__ = _NAME
        sys.modules[_NAME] = package
    return {part: importlib.import_module(f"{_NAME}.{part}") for part in _PARTS}


_found = _parts()
nlmsg, nlmsgerr = _found["netlink"].nlmsg, _found["netlink"].nlmsgerr
ifaddrmsg = _found["netlink.rtnl.ifaddrmsg"].ifaddrmsg
ifinfmsg = _found["netlink.rtnl.ifinfmsg"].ifinfmsg
ndmsg = _found["netlink.rtnl.ndmsg"].ndmsg
rtmsg = _found["netlink.rtnl.rtmsg"].rtmsg
