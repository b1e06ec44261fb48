"""Puts the plugin where the runtime looks for it, and takes it away again."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

from cni.edge.conflist import remove, write_atomically
from cni.model import Network
from cni.settings import CniSettings, conflist
from cni.spec import TYPE
from nodelib.errors import Invalid

_LONGEST_SHEBANG = 255  # BINPRM_BUF_SIZE - 1, linux/binfmts.h


def shim_text(socket: str, *, python: str = sys.executable, root: str = "") -> bytes:
    """The shim for this interpreter; `root` is the folder that has the package `cni`. Raises Invalid."""
    root = root or str(Path(__file__).resolve().parent.parent)
    for name, value in (("interpreter", python), ("package folder", root), ("socket", socket)):
        if any(character in value for character in '"\\\n') or (name == "interpreter" and " " in value):
            raise Invalid(
                f"the path of the {name} has a character that a script's first line cannot hold: {value!r}",
                obj="CNI plugin",
                step="install",
                action="Install nodewright under a plain path.",
            )
    text = (files("cni") / "shim").read_text()
    text = text.replace("@PYTHON@", python).replace("@SOCKET@", socket).replace("@ROOT@", root)
    if len(text.partition("\n")[0]) > _LONGEST_SHEBANG:
        raise Invalid(
            f"the interpreter's path is longer than the kernel allows: {python}",
            obj="CNI plugin",
            step="install",
            action="Install nodewright under a shorter path.",
        )
    return text.encode()


def install_plugin(settings: CniSettings, *, python: str = sys.executable) -> Path:
    """Write <bin_dir>/nodewright, whole, mode 0755. Raises Invalid, Permanent."""
    path = Path(settings.bin_dir) / TYPE
    write_atomically(path, shim_text(settings.socket, python=python), 0o755)
    return path


def publish(settings: CniSettings, pod_cidrs: tuple[Network, ...], non_masquerade: tuple[Network, ...]) -> bool:
    """Plugin first, then the .conflist that names it: the runtime says NetworkReady then. True if it changed."""
    install_plugin(settings)
    outside = json.dumps([str(item) for item in non_masquerade]).encode()
    write_atomically(known_file(settings.data_dir, settings.network), outside, 0o600)
    text = json.dumps(conflist(settings, pod_cidrs), indent=2).encode() + b"\n"
    return write_atomically(Path(settings.conf_file), text, 0o644)


def withdraw(settings: CniSettings) -> None:
    """The other way round: the runtime stops using the plugin before it is gone."""
    remove(Path(settings.conf_file))
    remove(Path(settings.bin_dir) / TYPE)


def known_file(data_dir: str, network: str) -> Path:
    """Where the daemon leaves the destinations that are not masqueraded, for the plugin when it works alone."""
    return Path(data_dir) / network / ".not-masqueraded"
