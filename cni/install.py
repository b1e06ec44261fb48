"""Puts the plugin where the runtime looks for it, and takes it away again."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from importlib.resources import files
from ipaddress import ip_network
from pathlib import Path

from cni.daemon import Remembered
from cni.edge.conflist import remove, write_atomically
from cni.model import Network
from cni.settings import CniSettings, conflist
from cni.spec import TYPE
from nodelib.errors import Invalid

_REMEMBERED = ("pod_cidrs", "non_masquerade")
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
    remember(settings.data_dir, settings.network, Remembered(pod_cidrs, non_masquerade))
    text = json.dumps(conflist(settings, pod_cidrs), indent=2).encode() + b"\n"
    return write_atomically(Path(settings.conf_file), text, 0o644)


def withdraw(settings: CniSettings) -> None:
    """The other way round: the runtime stops using the plugin before it is gone."""
    remove(Path(settings.conf_file))
    remove(Path(settings.bin_dir) / TYPE)


def remember(data_dir: str, network: str, value: Remembered) -> None:
    """For the next run, and for the plugin when it works alone."""
    raw = {name: [str(item) for item in getattr(value, name)] for name in _REMEMBERED}
    write_atomically(Path(data_dir) / network / ".published", json.dumps(raw).encode(), 0o600)


def recall(data_dir: str, network: str) -> Remembered:
    """What `remember` wrote; nothing when there is no such file or it is damaged (it is written anew soon)."""
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        raw = json.loads((Path(data_dir) / network / ".published").read_bytes())
        return Remembered(*(tuple(map(ip_network, raw[name])) for name in _REMEMBERED))
    return Remembered()
