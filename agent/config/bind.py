"""Fills settings dataclasses from a configuration, by the bindings in the annotations of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from agent.common.model.binding import Binding

T = TypeVar("T")


def bind(kind: type[T], values: Mapping[str, Any], **unbound: Any) -> T:
    """`values`: by field path or --flag. `unbound`: fields without a binding; those left out keep their defaults."""
    made = {name: _made(source, values) for name, source in _sources(kind)}
    return kind(**made, **unbound)


def bound(kind: type[Any]) -> frozenset[str]:
    """The field paths, --flags and gates that this dataclass and those within it are made from."""
    return frozenset(each for _, _, source in bindings(kind) for each in source.sources)


def bindings(kind: type[Any]) -> Iterator[tuple[type[Any], str, Binding]]:
    """Each setting with a binding in this dataclass and those within it: its dataclass, its name and the binding."""
    for name, source in _sources(kind):
        if isinstance(source, Binding):
            yield kind, name, source
        else:
            yield from bindings(source)


def _made(source: Binding | type[Any], values: Mapping[str, Any]) -> Any:
    return source.value(values) if isinstance(source, Binding) else bind(source, values)


def _sources(kind: type[Any]) -> Iterator[tuple[str, Binding | type[Any]]]:
    """Name of a field, and its binding or the settings dataclass that it is."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Annotated:
            yield from ((name, extra) for extra in get_args(hint)[1:] if isinstance(extra, Binding))
        elif isinstance(hint, type) and is_dataclass(hint):
            yield name, hint
