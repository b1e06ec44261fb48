"""`nodewright policy explain`: reads policies, pods and namespaces from the API, and says who may reach whom."""

from __future__ import annotations

import asyncio
import json

from cli import clusters
from cli.display.columns import aligned
from cli.explain.facts import alive, key
from cli.explain.named import NODE, POD, SERVICE, kind_of, owned
from cli.policies import api
from cli.policies.explain_text import document, notes, tables
from cli.policies.objects import Objects
from cli.policies.sources import NOT_ENFORCED
from cli.why.wording import Wording
from nodelib.errors import NotFound, WrongUsage
from nodelib.text import one_line
from policy.model import Name, Pod
from policy.plan.explain import Explained

_LINE = 4000  # bytes of a printed line


def run(name: str, pod: str, *, namespace: str, kubeconfig: str, as_json: bool) -> None:
    """Print it. Raises NotFound for an unknown pod, what the client raises, and WrongUsage for what is no name."""
    kind, wanted = asked(pod, namespace)
    path, cluster = clusters.place(name, kubeconfig)
    objects = asyncio.run(api.objects(path))
    wording = Wording(cluster.name if cluster is not None else "", kubeconfig)
    found = objects.explained(chosen(kind, wanted, objects, wording))
    if as_json:
        print(json.dumps(document(found, objects), indent=1))
        return
    if kind != POD:
        print(one_line(f"{kind} {wanted}; one of its pods:", _LINE))
    for line in explained_lines(found, objects):
        print(one_line(line, _LINE))
    if cluster is not None and not cluster.options.enforces_policies:
        print(f"But {NOT_ENFORCED}.")


def explained_lines(found: Explained, objects: Objects) -> list[str]:
    lines = [f"pod {found.pod}" + (f": {found.exempt}" if found.exempt else "")]
    for side in () if found.exempt else found.sides:
        for title, rows in tables(side):
            lines += ["", title, *(f"  {line}" for line in (aligned(rows) if rows else ()))]
    said = notes(found, objects)
    return [*lines, "", *said] if said else lines


def asked(text: str, namespace: str) -> tuple[str, Name]:
    """The kind and name of NAME, NAMESPACE/NAME, KIND/NAME or NAMESPACE/KIND/NAME. Else raises WrongUsage."""
    parts = text.split("/")
    kind, own = kind_of("/".join(parts[-2:]))
    if len(parts) == 3 and kind:
        parts = [parts[0], own]
    elif kind:
        parts = [own]
    if not all(parts) or len(parts) > 2 or kind in (SERVICE, NODE):
        action = "Write POD, NAMESPACE/POD, or a workload such as deploy/NAME."
        raise WrongUsage("is not the name of a pod or of a workload", obj=text, action=action)
    return kind or POD, Name(parts[0], parts[1]) if len(parts) == 2 else Name(namespace, parts[0])


def chosen(kind: str, wanted: Name, objects: Objects, wording: Wording) -> Pod:
    """The pod, or the first pod of the workload that has not ended. Raises NotFound."""
    step, name = "explain its policies", wanted
    listed = wording.typed("`kubectl get pods -A`")
    if kind != POD:
        alike = (one for one in objects.raw_pods if key(one)[0] == wanted.namespace and alive(one))
        found = next((key(one) for one in alike if owned(one, kind, wanted.name)), None)
        if found is None:
            action = f"{listed} lists the pods that there are; -n says in which namespace to look."
            raise NotFound(f'no pod of {kind} "{wanted}"', step=step, action=action)
        name = Name(*found)
    known = objects.pod(name)
    if known is None:
        near = ", ".join(objects.named_like(wanted.name))
        action = f"It is in namespace {near}; add -n." if near else f"{listed} lists them."
        if not near and any(one.name == wanted for one in objects.policies):
            lists = wording.typed(f"`nodewright policy list -n {wanted.namespace}`")
            action = f"{wanted} is a NetworkPolicy: {lists} shows the pods that it selects; explain one of those."
        raise NotFound(f'no pod "{wanted}"', step=step, action=action)
    return known
