"""Takes images out of docker or podman on this machine, by name."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from nodelib import command
from nodelib.errors import NotFound
from nodelib.text import one_line

_SECONDS = 600.0


async def save(name: str, target: Path) -> str:
    """Write the image as an archive. Returns who had it. Raises NotFound, which tells what each of them said."""
    tried = []
    for engine, argv in _engines().items():
        if not shutil.which(argv[0]):
            tried.append(f"{engine} is not installed")
            continue
        # Through standard output: the archive is ours then, whoever the engine runs as.
        script = ["sh", "-c", 'exec "$@" > "$0"', str(target), *argv, "save", name]
        try:
            done = await command.run(script, timeout=_SECONDS, check=False)
        except command.CommandError as error:
            tried.append(f"{engine}: {error.message}")
            continue
        if done.returncode == 0 and target.stat().st_size > 0:
            return engine
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
        tried.append(f"{engine}: {one_line(said[-1], 300)}")
    raise NotFound(
        f"it is neither a file here nor an image of docker or podman ({'; '.join(tried)})",
        obj=name,
        step="load an image",
        action=f"Build or pull it (`docker pull {shlex.quote(name)}`), or name an archive of `docker save`.",
    )


def _engines() -> dict[str, list[str]]:
    """Their command lines. Under sudo also podman of the user, whose images root's podman does not have."""
    engines = {"docker": ["docker"], "podman": ["podman"]}
    user = os.environ.get("SUDO_USER", "")
    if user and user != "root" and shutil.which("podman") and shutil.which("runuser"):
        engines[f"podman of {user}"] = ["runuser", "-u", user, "--", "podman"]
    return engines
