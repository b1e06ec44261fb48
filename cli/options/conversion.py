"""Keeps pydantic out of commands whose values need no conversion: they start in two thirds of the time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from typer._click.exceptions import BadParameter


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
        try:
            return self._by_typer().coerce(value, param=param, ctx=ctx)
        except BadParameter as error:
            error.message = _plainly(error.message, value, param)
            raise


def _plainly(message: str, value: Any, param: Any) -> str:
    """What pydantic says of a value, in words for who has typed it."""
    if not message.startswith("Input should be"):
        return message.removeprefix("Value error, ")
    least, most = param.min, param.max
    what = {int: "a whole number", float: "a number"}.get(param.type_descriptor.annotation)
    if what is None:
        return message
    bounds = f" from {least} to {most}" if None not in (least, most) else f" of at least {least}" * (least is not None)
    return f"must be {what}{bounds}, not {value}"
