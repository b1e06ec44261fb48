"""Which settings the code reads: attributes of variables, fields and arguments that hold the settings' dataclasses."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints


def dataclasses_of(kind: type[Any]) -> Iterator[type[Any]]:
    """A dataclass and those that its fields are."""
    yield kind
    for hint in get_type_hints(kind).values():
        if isinstance(hint, type) and is_dataclass(hint):
            yield from dataclasses_of(hint)


def read_settings(kinds: Iterable[type[Any]], folders: Iterable[Path]) -> frozenset[str]:
    """ "Class.field" of each field that some module reads.

    What holds a class is known by its name: that of a field with this type, or of an argument or variable that is
    annotated with it; and `self` in a method of the class.
    """
    names = {kind.__name__: {field.name for field in fields(kind)} for kind in kinds}
    trees = [ast.parse(path.read_text(encoding="utf-8")) for folder in folders for path in folder.rglob("*.py")]
    holders: dict[str, set[str]] = {}
    for tree in trees:
        for holder, kind in _annotated(tree):
            if kind in names:
                holders.setdefault(holder, set()).add(kind)
    found: set[str] = set()
    for tree in trees:
        for holder, attribute in _reads(tree):
            found |= {f"{kind}.{attribute}" for kind in holders.get(holder, ()) if attribute in names[kind]}
        for kind, attribute in _own_reads(tree):
            if attribute in names.get(kind, ()):
                found.add(f"{kind}.{attribute}")
    return frozenset(found)


def _annotated(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(name, class): `name: Class`, as an argument, a variable or a field, also `Class | None`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            yield from ((node.arg, kind) for kind in _classes(node.annotation))
        elif isinstance(node, ast.AnnAssign) and (name := _last(node.target)):
            yield from ((name, kind) for kind in _classes(node.annotation))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            # `settings = self._deps.settings`: the same holder under another name.
            yield from ((node.targets[0].id, kind) for kind in _classes(node.value))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield from ((node.name, kind) for kind in _classes(node.returns))


def _classes(node: ast.AST) -> Iterator[str]:
    yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each.id[:1].isupper())


def _reads(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(holder, attribute) of every attribute that is read: `….holder.attribute`."""
    aliases = dict(_aliases(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and (name := _last(node.value)):
            plain = name.lstrip("_")
            yield from ((each, node.attr) for each in (name, plain, aliases.get(name, "")) if each)


def _aliases(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(name, holder) of `name = ….holder`, also of `a, b = ….c, ….d`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        targets, values = node.targets[0], node.value
        pairs = [(targets, values)]
        if isinstance(targets, ast.Tuple) and isinstance(values, ast.Tuple):
            pairs = list(zip(targets.elts, values.elts, strict=False))
        for target, value in pairs:
            if (name := _last(target)) and (holder := _last(value)):
                yield name, holder


def _own_reads(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from ((node.name, attribute) for holder, attribute in _reads(node) if holder == "self")


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call):
        return _last(node.func)
    return ""
