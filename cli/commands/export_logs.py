"""`nodewright export logs`: one folder that answers a bug report."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cli.clusters import find
from cli.errors import need_root
from cli.export import folder as target
from cli.export import parts, sources
from cli.export.redact import Redactor
from controlplane.cluster.model import Cluster
from nodelib.errors import NodewrightError
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.text import one_line


def run(name: str, folder: Path) -> None:
    """Write the folder and say what is in it."""
    need_root("export logs")
    cluster = find(name)
    target.claim(folder)
    written = asyncio.run(_write(cluster, folder))
    (folder / "CONTENTS.txt").write_text(target.contents(written))
    target.refuse_nothing(written)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {len(written)} files, {size / 1e6:.1f} MB. CONTENTS.txt lists them.")
    failed = [one for one in written if one.problem]
    for one in failed[:5]:
        print(f"  {one.path}: {one_line(one.problem, 160)}")
    if len(failed) > 5:
        print(f"  and {len(failed) - 5} more that could not be read")
    print("Secrets, tokens and keys are left out as far as they are recognized: look through it before you publish it.")


async def _write(cluster: Cluster, folder: Path) -> list[target.Written]:
    async with KubeClient(
        load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-export", timeout=5
    ) as client:
        try:
            secrets = await sources.listed(client, "/api/v1/secrets")
        except NodewrightError:  # what is a Secret's value is then not known; the shapes of secrets still are
            secrets = []
        return await target.write(folder, parts.every(cluster, client, Redactor(secrets)))
