"""One row of the page: what upstream has, and what is done with it here. Facts only."""

from __future__ import annotations

from dataclasses import dataclass

from nodelib.upstream.answers import Answer


@dataclass(frozen=True, slots=True)
class Row:
    """`default`: upstream's, as text; `sets`: the field that a flag sets, which then has the answer.

    `switch`: of a gate that is obeyed, whether setting it changes something here.
    """

    name: str
    default: str
    answer: Answer | None
    sets: str = ""
    stage: str = ""
    switch: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """ "kubelet" or "kube-proxy": its fields and its flags."""

    name: str
    fields: tuple[Row, ...]
    flags: tuple[Row, ...]
