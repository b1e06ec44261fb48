"""Messages to the browser, and the text of an object. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson
import yaml

from nodelib.json_values import Json, encoded_size
from nodelib.text import cut, harmless, one_line
from view.model.network import Enforced, Refused, ServiceSaid, Traced, Wired
from view.model.objects import POD, Look, Question, Row, row_key
from view.model.pods import Why

_OBJECT = 128 * 1024  # bytes of the text of one object
_YAML = 64 * 1024  # bytes of an object that is still written as YAML, which is slow
_LINES = 400  # of one text
_LINE = 2000  # bytes
_LIST = 40  # waits, ends and the like
_ROWS = 250  # in one message
_HOPS = 200
_LINK = 8000  # bytes of a link's object


def rows(changed: Mapping[str, Row | None]) -> list[str]:
    """The messages that bring a browser up to date; None for a row that is gone."""
    keys = list(changed)
    return [_rows({key: changed[key] for key in keys[at : at + _ROWS]}) for at in range(0, len(keys), _ROWS)]


def _rows(some: Mapping[str, Row | None]) -> str:
    gone = [key for key, row in some.items() if row is None]
    return message("rows", rows=[row for row in some.values() if row is not None], gone=gone)


def state(problems: Mapping[str, str], synced: bool, cluster: str, notes: Sequence[str]) -> str:
    """`problems`: by collection, why there is no news of it; `notes`: what is not shown, and why."""
    words = list(dict.fromkeys(one_line(text, _LINE) for text in problems.values()))
    said = [one_line(text, _LINE) for text in notes[:_LIST]]
    return message("state", problems=words[:_LIST], synced=synced, cluster=one_line(cluster, _LINE), notes=said)


def pod_detail(look: Look, pod: Json, answer: Why | str, life: Json) -> str:
    """`answer`: what `why` says, or why it cannot say it."""
    why = {"problem": harmless(answer, _LINE)} if isinstance(answer, str) else _why(answer)
    return _detail(look, pod, why=why, life=life)


def service_detail(look: Look, service: Json, said: ServiceSaid) -> str:
    problems = [{"text": text, "action": action} for text, action in said.problems[:_LIST]]
    return _detail(look, service, lines=bounded(said.lines), problems=_texts(problems))


def costs(look: Look, plots: Sequence[Json]) -> str:
    """Beside the pod that is looked at."""
    return message("costs", key=row_key(look.kind, look.key), costs=plots)


def node_detail(look: Look, node: Json, work: Json | str, wired: Wired | str) -> str:
    """`work`: what the node is at, `wired`: how; or why that cannot be said."""
    return _detail(look, node, work=_or_problem(work), wired=_or_problem(wired, _LINK))


def policy_detail(look: Look, policy: Json, enforced: Enforced | str) -> str:
    """`enforced`: its rules on the nodes, or why they are not known."""
    if isinstance(enforced, str):
        return _detail(look, policy, enforced=_or_problem(enforced))
    nodes = [{"node": one.node, "rules": [asdict(rule) for rule in one.rules[:_HOPS]]} for one in enforced.nodes]
    problems = _texts(enforced.problems[:_LIST])
    return _detail(look, policy, enforced={"nodes": _texts(nodes), "problems": problems})


def wiring(nodes: Mapping[str, Wired | str]) -> str:
    """Of each node without the objects themselves; or why it cannot be said."""
    return message("wiring", nodes={name: _without_objects(_or_problem(one)) for name, one in nodes.items()})


def _without_objects(wired: Json) -> Json:
    for one in wired.get("links", []):
        one.pop("text", None)
    wired.pop("sysctls", None)
    return wired


def _or_problem(found: object, longest: int = _LINE) -> Json:
    if isinstance(found, str):
        return {"problem": harmless(found, _LINE)}
    values = found if isinstance(found, dict) else asdict(found)  # type: ignore[call-overload]  # or a dataclass
    cut_texts: Json = _texts(values, longest)
    return cut_texts


def gone(look: Look) -> str:
    """There is no such object, or no more."""
    return message("detail", key=row_key(look.kind, look.key), kind=look.kind, gone=True)


def walk(asked: Question, answer: Traced | str) -> str:
    """The same walk, read again: its counters have moved, and its rules may be others. Or why it cannot be read."""
    found = {"problem": harmless(answer, 2 * _LINE)} if isinstance(answer, str) else _walk(answer)
    return message("walk", asked={"from": asked.source, "to": asked.to, "protocol": asked.protocol}, found=found)


def refused(every: Iterable[Refused], problems: Mapping[str, str]) -> str:
    """The newest refused packets, the last one first."""
    found = sorted((asdict(one) for one in every), key=lambda one: -one["last"])
    return message("refused", refused=_texts(found), problems=_texts(dict(problems)))


def refused_of(look: Look, every: Iterable[Refused]) -> str:
    """Beside the pod that is looked at: what policies refuse of its packets, the last one first."""
    found = sorted((asdict(one) for one in every), key=lambda one: -one["last"])
    return message("refusals", key=row_key(look.kind, look.key), refused=_texts(found[:_LIST]))


def drops(every: Iterable[Refused]) -> str:
    """Of each pod whose packets policies drop the newest flow, the last one first; a pod that is asked from outside
    stands for those who ask it."""
    newest: dict[str, Refused] = {}
    for one in sorted(every, key=lambda one: -one.last):
        newest.setdefault(one.source if "/" in one.source else one.to, one)
    found = [
        {"pod": f"{POD}/{pod}", "last": one.last, "to": one.to, "by": one.by, "policies": one.policies}
        for pod, one in newest.items()
        if "/" in pod
    ]
    return message("drops", drops=_texts(found))


def traced(answer: Traced) -> bytes:
    return orjson.dumps(_walk(answer))


def _walk(answer: Traced) -> Json:
    """With at most so many hops of each leg."""
    found = asdict(answer)
    for way in found["ways"][:_LIST]:
        for leg in way["legs"]:
            leg["left_out"] = max(0, len(leg["hops"]) - _HOPS)
            leg["hops"] = leg["hops"][:_HOPS]
    found["ways"] = found["ways"][:_LIST]
    cut_texts: Json = _texts(found)
    return cut_texts


def problem(text: str) -> bytes:
    return orjson.dumps({"problem": harmless(text, 2 * _LINE)})


def object_text(obj: Json) -> str:
    """As `kubectl get -o yaml` writes it, without what only the API server needs."""
    shown = {**obj, "metadata": {key: one for key, one in obj["metadata"].items() if key != "managedFields"}}
    whole: Json = {key: shown.pop(key) for key in ("apiVersion", "kind") if key in shown} | shown
    if encoded_size(whole) > _YAML:
        return cut(orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode(), _OBJECT)
    text: str = yaml.dump(whole, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=120)
    return cut(text, _OBJECT)


def bounded(lines: Iterable[str]) -> list[str]:
    """The lines of a command's answer; what is left out is said."""
    every = list(lines)
    shown = [one_line(line, _LINE) for line in every[:_LINES]]
    return [*shown, f"… and {len(every) - _LINES} more lines"] if len(every) > _LINES else shown


def message(kind: str, /, **rest: object) -> str:
    return orjson.dumps({"type": kind, **rest}).decode()


def _detail(look: Look, obj: Json, **rest: object) -> str:
    return message("detail", key=row_key(look.kind, look.key), kind=look.kind, object=object_text(obj), **rest)


def _why(answer: Why) -> Json:
    found: Json = asdict(answer)
    found.pop("steps")
    found["waits"], found["ends"] = found["waits"][:_LIST], found["ends"][:_LIST]
    cut_texts: Json = _texts(found)
    return cut_texts


def _texts(value: object, longest: int = _LINE) -> Any:
    """The same with every text cut."""
    if isinstance(value, str):
        return harmless(value, longest)
    if isinstance(value, dict):
        return {key: _texts(one, longest) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_texts(one, longest) for one in value]
    return value
