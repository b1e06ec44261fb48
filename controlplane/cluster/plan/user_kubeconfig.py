"""The entries of a cluster in the kubeconfig of a user, which others write too. Pure: text to text.

What is not ours stays as it is written: the file is changed as a tree of YAML nodes, so numbers, quotes, anchors and
the order of keys are kept. Only comments are lost, as with `kubectl config`. Which file is meant follows kind and
kubectl (pkg/cluster/internal/kubeconfig in kubernetes-sigs/kind, tools/clientcmd in k8s.io/client-go).
"""

from __future__ import annotations

import hashlib
import posixpath
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import yaml

from nodelib import safe_yaml
from nodelib.errors import Conflict, Invalid

_LIMITS = safe_yaml.Limits(size=16 << 20, values=500_000)
_MAP, _LIST, _STR = ("tag:yaml.org,2002:" + kind for kind in ("map", "seq", "str"))
_ENTRY = {"clusters": "cluster", "contexts": "context", "users": "user"}
_CURRENT = "current-context"
_OWN_KEYS = frozenset(("client-certificate-data", "client-key-data"))  # of our user entry


@dataclass(frozen=True, slots=True)
class Merged:
    """The new text of the file, and its current context."""

    text: str
    current: str


def chosen_file(option: str | None, variable: str, home: str, exists: Callable[[str], bool]) -> str:
    """The file to merge into: the one given, else the first of $KUBECONFIG that exists (or its last), else
    ~/.kube/config."""
    if option is not None:
        return option
    listed = [path for path in variable.split(":") if path]
    if not listed:
        return posixpath.join(home, ".kube", "config")
    return next((path for path in listed if exists(path)), listed[-1])


def merge(text: str, path: str, name: str, own: str, authorities: Collection[str] | None = None) -> Merged:
    """`text` with the entries of the kubeconfig `own` under `name`. Raises Invalid for a file that is no kubeconfig.

    With `authorities` (digests, as of authority()) entries of this name that are of another cluster are left alone:
    Raises Conflict.

    The current context becomes ours when our context is new in the file, or there is none.
    """
    root = _root(text, path) or _empty()
    ours = _root(own, path) or _empty()
    if authorities is not None:
        _refuse_foreign(root, path, name, {*authorities, authority(own)})
    known = name in _names(root, "contexts", path)
    _put(root, "users", name, _only(ours, "users"), path)
    _put(root, "clusters", name, _only(ours, "clusters"), path)
    context = _mapping({"cluster": _text(name), "user": _text(name)})
    old = _entry(root, "contexts", name, path)
    if known and old is not None:  # a namespace that the user chose for this context stays
        context.value += [pair for pair in old.value if pair[0].value not in ("cluster", "user")]
    _put(root, "contexts", name, context, path)
    if not known or not _current(root):
        _set(root, _CURRENT, _text(name))
    return Merged(_written(root), _current(root))


def without(text: str, path: str, name: str, authorities: Collection[str] | None = None) -> str | None:
    """`text` without the entries of `name`, None if it has none. Raises as merge()."""
    root = _root(text, path)
    if root is None:
        return None
    if authorities is not None:
        _refuse_foreign(root, path, name, authorities)
    found = _current(root) == name
    if found:
        _set(root, _CURRENT, _text(""))
    for kind in _ENTRY:
        listed = _list(root, kind, path)
        kept = [one for one in listed.value if _name(one) != name] if listed else []
        if listed and len(kept) != len(listed.value):
            listed.value, found = kept, True
    return _written(root) if found else None


def authority(own: str) -> str:
    """The digest of the certificate authority in a cluster's own kubeconfig: no two clusters have the same."""
    root = _root(own, "admin.conf") if own else None
    return _authority(_only(root, "clusters")) if root is not None else ""


def _authority(entry: yaml.MappingNode) -> str:
    data = _get(entry, "certificate-authority-data")
    text = data.value if isinstance(data, yaml.ScalarNode) else ""
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def _refuse_foreign(root: yaml.MappingNode, path: str, name: str, authorities: Collection[str]) -> None:
    """Raises Conflict for an entry of this name that is not of a cluster with one of these authorities.

    A name is no proof: other machines have clusters of the same name, with the same addresses.
    """
    cluster, context, user = (_entry(root, kind, name, path) for kind in ("clusters", "contexts", "users"))
    foreign = cluster is not None and _authority(cluster) not in {*authorities} - {""}
    foreign = foreign or (context is not None and not _leads_to(context, name))
    foreign = foreign or (user is not None and not {key.value for key, _ in user.value} <= _OWN_KEYS)
    if foreign:
        quoted = shlex.quote(path)
        raise Conflict(
            f"{name} in it is of another cluster (perhaps one of that name before this one, or of another machine)"
            "; it was left as it is",
            obj=path,
            step="change the kubeconfig",
            action="Rename those entries, or remove them: "
            + ", ".join(
                f"`kubectl config {word} {name} --kubeconfig {quoted}`"
                for word in ("delete-context", "delete-cluster", "delete-user")
            )
            + "; or name another file by --kubeconfig.",
        )


def _leads_to(context: yaml.MappingNode, name: str) -> bool:
    parts = (_get(context, "cluster"), _get(context, "user"))
    return all(isinstance(one, yaml.ScalarNode) and one.value == name for one in parts)


def _root(text: str, path: str) -> yaml.MappingNode | None:
    try:
        documents = list(safe_yaml.compose_all(text, _LIMITS))
    except yaml.YAMLError as error:
        reason = safe_yaml.problem(error) if isinstance(error, yaml.MarkedYAMLError) else str(error)
        raise _broken(path, reason) from error
    if not documents or _is_null(documents[0]):
        return None
    if len(documents) > 1:
        raise _broken(path, "it has more than one document")
    if not isinstance(documents[0], yaml.MappingNode):
        raise _broken(path, "it is not a mapping")
    return documents[0]


def _list(root: yaml.MappingNode, kind: str, path: str) -> yaml.SequenceNode | None:
    """The entries of a kind, None for none. Raises Invalid for anything but named mappings."""
    found = _get(root, kind)
    if found is None or _is_null(found):
        return None
    if not isinstance(found, yaml.SequenceNode) or not all(isinstance(one, yaml.MappingNode) for one in found.value):
        raise _broken(path, f"{kind} is not a list of named entries")
    return found


def _names(root: yaml.MappingNode, kind: str, path: str) -> list[str]:
    listed = _list(root, kind, path)
    return [_name(one) for one in listed.value] if listed else []


def _entry(root: yaml.MappingNode, kind: str, name: str, path: str) -> yaml.MappingNode | None:
    listed = _list(root, kind, path)
    for one in listed.value if listed else ():
        value = _get(one, _ENTRY[kind])
        if _name(one) == name and isinstance(value, yaml.MappingNode):
            return value
    return None


def _only(ours: yaml.MappingNode, kind: str) -> yaml.MappingNode:
    """The only entry of our own file, whatever its name, with plain keys and values."""
    listed = _list(ours, kind, "admin.conf")
    value = _get(listed.value[0], _ENTRY[kind]) if listed and listed.value else None
    if not isinstance(value, yaml.MappingNode):
        raise _broken("admin.conf", f"it has no {kind}")
    pairs = [(_text(key.value), yaml.ScalarNode(one.tag, one.value)) for key, one in value.value]
    return yaml.MappingNode(_MAP, pairs)


def _put(root: yaml.MappingNode, kind: str, name: str, value: yaml.MappingNode, path: str) -> None:
    """Add or replace one entry, in the style of the file: in braces within JSON, in blocks otherwise."""
    flow = bool(root.flow_style)
    listed = _list(root, kind, path)
    if listed is None:
        listed = yaml.SequenceNode(_LIST, [], flow_style=flow)
        _set(root, kind, listed)
    listed.flow_style = flow  # an empty one is always written in brackets
    plain = yaml.MappingNode(_MAP, value.value, flow_style=flow)
    fresh = yaml.MappingNode(_MAP, [(_text(_ENTRY[kind]), plain), (_text("name"), _text(name))], flow_style=flow)
    at = next((i for i, one in enumerate(listed.value) if _name(one) == name), len(listed.value))
    listed.value[at : at + 1] = [fresh]


def _get(mapping: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for name, value in mapping.value if name.value == key), None)


def _set(mapping: yaml.MappingNode, key: str, value: yaml.Node) -> None:
    for at, (name, _) in enumerate(mapping.value):
        if name.value == key:
            mapping.value[at] = (name, value)
            return
    mapping.value.append((_text(key), value))


def _name(entry: yaml.MappingNode) -> str:
    found = _get(entry, "name")
    return str(found.value) if isinstance(found, yaml.ScalarNode) else ""


def _current(root: yaml.MappingNode) -> str:
    found = _get(root, _CURRENT)
    return str(found.value) if isinstance(found, yaml.ScalarNode) and not _is_null(found) else ""


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _empty() -> yaml.MappingNode:
    return _mapping({"apiVersion": _text("v1"), "kind": _text("Config")})


def _mapping(values: Mapping[str, yaml.Node]) -> yaml.MappingNode:
    return yaml.MappingNode(_MAP, [(_text(key), value) for key, value in values.items()], flow_style=False)


def _text(value: str) -> yaml.ScalarNode:
    return yaml.ScalarNode(_STR, value)


def _written(root: yaml.MappingNode) -> str:
    if root.flow_style:
        _quote(root, set())  # JSON stays JSON
    return str(yaml.serialize(root, Dumper=yaml.CSafeDumper, width=1 << 30, allow_unicode=True))


def _quote(node: yaml.Node, seen: set[int]) -> None:
    if id(node) in seen:  # an alias
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        node.style = node.style or ('"' if node.tag == _STR else None)
    for one in node.value if isinstance(node, yaml.CollectionNode) else ():
        for part in one if isinstance(one, tuple) else (one,):
            _quote(part, seen)


def _broken(path: str, reason: str) -> Invalid:
    return Invalid(
        f"this file is not a kubeconfig: {reason}; it was left as it is",
        obj=path,
        step="change the kubeconfig",
        action=f"Mend it (`kubectl config view --kubeconfig {shlex.quote(path)}` says more), or name another file by"
        " --kubeconfig.",
    )
