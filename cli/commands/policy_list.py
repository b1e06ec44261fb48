"""`nodewright policy list`: the network policies that the API server has, and which pods each of them selects."""

from __future__ import annotations

import asyncio
import json

from cli import clusters
from cli.display.columns import aligned
from cli.policies import api
from cli.policies.list_text import HEADS, document, listings, row
from cli.policies.sources import NOT_ENFORCED
from nodelib.text import one_line

_LINE = 4000  # bytes of a printed line


def run(name: str, *, namespace: str, kubeconfig: str, as_json: bool) -> None:
    """Print them. Raises NotFound for an unknown cluster, and what the client raises."""
    path, cluster = clusters.place(name, kubeconfig)
    objects = asyncio.run(api.objects(path))
    found = listings(objects, namespace)
    if as_json:
        print(json.dumps(document(found, objects.notes), indent=1))
        return
    where = f" in namespace {namespace}" if namespace else ""
    lines = aligned([HEADS, *map(row, found)]) if found else [f"There are no network policies{where}."]
    for line in [*lines, *objects.notes]:
        print(one_line(line, _LINE))
    if not objects.whole:
        print("The cluster has more objects than were looked at.")
    if cluster is not None and not cluster.options.enforces_policies:
        print(f"But {NOT_ENFORCED}.")
