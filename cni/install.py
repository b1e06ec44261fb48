"""Installs the plugin and its configuration where the runtime looks for them, and removes them."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from cni.daemon import Published
from cni.edge.conflist import remove, write_atomically
from cni.model import Network
from cni.settings import CniSettings, conflist
from cni.spec.configuration import TYPE
from nodelib.addresses import parse_network
from nodelib.daemons.python_path import python_path
from nodelib.errors import Invalid
from nodelib.json_values import decode

_FIELDS = ("pod_cidrs", "non_masquerade")
_LONGEST_SHEBANG = 255  # BINPRM_BUF_SIZE - 1, linux/binfmts.h


def shim_text(socket: str, *, python: str = sys.executable) -> bytes:
    """The shim for this interpreter. It does the work alone with the packages of this process. Raises Invalid.

    The interpreter is started without PYTHONPATH, which is where an installed node has its packages.
    """
    folders = python_path(str(Path(__file__).resolve().parent.parent))
    for name, value in (("interpreter", python), ("package folder", folders), ("socket", socket)):
        if any(character in value for character in '"\\\n') or (name == "interpreter" and " " in value):
            raise Invalid(
                f"the path of the {name} has a character that a script's first line cannot hold: {value!r}",
                obj="CNI plugin",
                step="install",
                action="Install nodewright under a plain path.",
            )
    text = (files("cni") / "shim").read_text()
    text = text.replace("@PYTHON@", python).replace("@SOCKET@", socket).replace("@FOLDERS@", folders)
    if len(text.partition("\n")[0]) > _LONGEST_SHEBANG:
        raise Invalid(
            f"the interpreter's path is longer than the kernel allows: {python}",
            obj="CNI plugin",
            step="install",
            action="Install nodewright under a shorter path.",
        )
    return text.encode()


def install_plugin(settings: CniSettings, *, python: str = sys.executable) -> Path:
    """Write <bin_dir>/nodewright with mode 0755, atomically. Raises Invalid, Permanent."""
    path = Path(settings.bin_dir) / TYPE
    write_atomically(path, shim_text(settings.socket, python=python), 0o755)
    return path


def publish(settings: CniSettings, pod_cidrs: tuple[Network, ...], non_masquerade: tuple[Network, ...]) -> bool:
    """Write the plugin, then the .conflist that makes the runtime NetworkReady. True: the .conflist changed."""
    install_plugin(settings)
    save_published(settings.data_dir, settings.network, Published(pod_cidrs, non_masquerade))
    text = json.dumps(conflist(settings, pod_cidrs), indent=2).encode() + b"\n"
    return write_atomically(Path(settings.conf_file), text, 0o644)


def withdraw(settings: CniSettings) -> None:
    """Remove the .conflist, then the plugin, so that the runtime stops using it before it is gone."""
    remove(Path(settings.conf_file))
    remove(Path(settings.bin_dir) / TYPE)


def save_published(data_dir: str, network: str, value: Published) -> None:
    """Keep it for the next run, and for the standalone plugin."""
    raw = {name: [str(item) for item in getattr(value, name)] for name in _FIELDS}
    write_atomically(Path(data_dir) / network / ".published", json.dumps(raw).encode(), 0o600)


def load_published(data_dir: str, network: str) -> Published:
    """What `save_published` wrote. Empty when the file is missing or damaged: it is written again soon."""
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        raw = decode((Path(data_dir) / network / ".published").read_bytes())
        return Published(*(_networks(raw[name]) for name in _FIELDS))
    return Published()


def _networks(texts: list[object]) -> tuple[Network, ...]:
    """Those that are networks: an older version kept also what would become the text of a rule."""
    found = []
    for text in texts:
        with suppress(ValueError):
            found.append(parse_network(text))
    return tuple(found)
