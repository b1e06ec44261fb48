"""`nodewright export logs`: one folder that answers a bug report."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cli.clusters import find, is_stopped
from cli.display.steps import Display, Say
from cli.errors import need_root
from cli.export import folder as target
from cli.export import parts, sources
from cli.export.redact import Redactor
from controlplane.cluster.model import Cluster
from controlplane.cluster.work import logins
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.text import one_line, visible

_MOST_SECRETS = 20_000
_SECRETS_WITHIN = 30.0


def run(name: str, folder: Path, *, plain: bool = False) -> None:
    """Write the folder and say what is in it."""
    need_root("export logs")
    cluster = find(name)
    target.claim(folder)
    with Display(plain=plain or None) as display, display.step("logs, objects and rules") as say:
        written, note = asyncio.run(_write(cluster, folder, say))
    size = sum(one.size for one in written) + target.save(folder, "CONTENTS.txt", target.contents(written, note))
    target.refuse_nothing(written)
    print(f"{visible(str(folder))}: {len(written)} files, {size / 1e6:.1f} MB. CONTENTS.txt lists them.")
    failed = [one for one in written if one.problem]
    for one in failed[:5]:
        print(f"  {one.path}: {one_line(one.problem, 160)}")
    if len(failed) > 5:
        print(f"  and {len(failed) - 5} more that could not be read")
    if note:
        print(note)
    print("Secrets, tokens and keys are left out as far as they are recognized: look through it before you publish it.")


async def _write(cluster: Cluster, folder: Path, say: Say) -> tuple[list[target.Written], str]:
    others = [password for _, password in logins.load(cluster).values()]
    if is_stopped(cluster):
        redactor = await asyncio.to_thread(Redactor, [], others)
        written = await target.write(folder, parts.every(cluster, None, redactor), say=say)
        return written, "The cluster is stopped, so that the values of its Secrets were not known: look twice."
    access = load_kubeconfig(cluster.admin_kubeconfig)
    async with KubeClient(access, user_agent="nodewright-export", timeout=5) as client:
        secrets, note = await _secrets(client)
        redactor = await asyncio.to_thread(Redactor, secrets, others)
        return await target.write(folder, parts.every(cluster, client, redactor), say=say), note


async def _secrets(client: KubeClient) -> tuple[list[Json], str]:
    """The cluster's Secrets, whose values are left out wherever they turn up, and a warning if some are not known."""
    try:
        async with asyncio.timeout(_SECRETS_WITHIN):
            found, whole = await sources.listed(client, "/api/v1/secrets", _MOST_SECRETS)
    except (NodewrightError, TimeoutError) as error:
        said = one_line(str(error), 200) or "it took too long"
        return [], f"The values of the cluster's Secrets were not known ({said}): look twice."
    return found, "" if whole else f"The values of only {len(found)} of the cluster's Secrets were known: look twice."
