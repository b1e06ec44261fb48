"""docs/compatibility.md. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from controlplane.compatibility.model import Program, Row
from nodelib.upstream.answers import Answer, Kind

_HEAD = """# Compatibility with the kubelet and kube-proxy of Kubernetes {version}

Every feature gate, field and flag of upstream's two programs, and what becomes of it here. The left columns are
generated from upstream's Go modules. The right ones are the files in `nodelib/upstream/answers`, from which the agent
and the proxy also take what they log. `python -m controlplane.compatibility page` makes this page; with `facts` in
place of `page` it asks the modules again.

- **obeyed**: it works as upstream's does. *Where* is the setting or the file that obeys it, *test* one that fails when
  it is taken out; where none is named, none has been shown to notice yet.
- **not applicable**: there is nothing here that it could change.
- **absent**: it would have an effect, and has none yet.

A field or flag that is not obeyed is accepted, and one line of the log says what happens instead if it is set to
anything but its default. A feature gate that upstream does not know is refused, and so is a change of a locked one;
one that cannot be switched here is said in the log.
"""

_BEGIN, _END = "<!-- compatibility: begin -->", "<!-- compatibility: end -->"


def page(version: str, programs: tuple[Program, ...], gates: tuple[Row, ...], others: int) -> str:
    """`others`: how many more gates a kubelet knows that no code of a node reads."""
    parts = [_HEAD.format(version=version), _counts(programs, gates)]
    parts.append(f"## Feature gates\n\n{_gate_words(others)}\n\n{_table(_gate_head(), map(_gate, gates))}")
    for program in programs:
        parts.append(f"## Fields of {_kind(program)}\n\n{_table(_field_head(), map(_field, program.fields))}")
        own = [row for row in program.flags if row.answer is not None]
        words = f"{len(program.flags) - len(own)} flags set a field above and share its answer. The others:"
        parts.append(f"## Flags of {program.name}\n\n{words}\n\n{_table(_field_head('flag'), map(_flag, own))}")
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def summary(programs: tuple[Program, ...], gates: tuple[Row, ...]) -> str:
    """What docs/features.md says of it: the counts, and what is on by default upstream and absent here."""
    absent = [row for row in gates if row.default == "on" and row.answer and row.answer.kind is Kind.ABSENT]
    names = ", ".join(f"`{row.name}`" for row in absent) or "nothing"
    return f"{_counts(programs, gates)}\n\nOn by default upstream and absent here: {names}."


def replaced(text: str, found: str) -> str:
    """A page with its part between the two marks replaced. Raises ValueError if it has none."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"there is no {_BEGIN} and {_END}")
    return f"{before}{begin}\n{found}\n{end}{after}"


def counted(rows: Iterable[Row]) -> Counter[Kind]:
    """How many rows have each answer."""
    return Counter(row.answer.kind for row in rows if row.answer is not None)


def _counts(programs: tuple[Program, ...], gates: tuple[Row, ...]) -> str:
    listed: list[tuple[str, Iterable[Row]]] = [("feature gates that a node's programs read", gates)]
    listed.append(("of them on by default", [row for row in gates if row.default == "on"]))
    for program in programs:
        own = {row.name: row for row in program.fields}
        listed.append((f"fields of {_kind(program)}", program.fields))
        flags = [row if row.answer else own[row.sets] for row in program.flags]
        listed.append((f"flags of {program.name}", flags))
    rows = []
    for name, found in listed:
        found = list(found)
        by = counted(found)
        named = sum(bool(row.answer and row.answer.test) for row in found)
        rows.append(
            (
                name,
                *(str(each) for each in (len(found), by[Kind.OBEYED], named)),
                *(str(by[kind]) for kind in (Kind.NOT_APPLICABLE, Kind.ABSENT)),
            )
        )
    return _table(("", "all", "obeyed", "with a test named", "not applicable", "absent"), rows)


def _gate_words(others: int) -> str:
    return (
        f"Those that code of the kubelet or kube-proxy reads. A kubelet knows {others} more, of the API server and the"
        " other components: they are accepted and change nothing on a node, as upstream has it.\n"
        "*Switch*: whether the gate switches the feature here. If not, it is always on or always off."
    )


def _gate_head() -> tuple[str, ...]:
    return ("gate", "stage", "default", "here", "switch", "where, or what instead", "test")


def _gate(row: Row) -> tuple[str, ...]:
    kind, what, test = _answer(row.answer)
    return (f"`{row.name}`", row.stage, row.default, kind, "yes" if row.switch else "", what, test)


def _field_head(kind: str = "field") -> tuple[str, ...]:
    return (kind, "upstream's default", "here", "where, or what instead", "test")


def _field(row: Row) -> tuple[str, ...]:
    return (f"`{row.name}`", _code(row.default), *_answer(row.answer))


def _flag(row: Row) -> tuple[str, ...]:
    return (f"`--{row.name}`", _code(row.default), *_answer(row.answer))


def _answer(answer: Answer | None) -> tuple[str, str, str]:
    if answer is None:
        return ("", "", "")
    where = _code(answer.where) if answer.kind is Kind.OBEYED and answer.where else ""
    what = "; ".join(filter(None, (where, answer.instead)))
    if answer.plan:
        what = f"{what} ({answer.plan})" if what else answer.plan
    return (answer.kind.value, what, _code(answer.test.removeprefix("tests/")))


def _kind(program: Program) -> str:
    return {"kubelet": "KubeletConfiguration", "kube-proxy": "KubeProxyConfiguration"}[program.name]


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(_lines(head, rows))


def _lines(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for cells in (head, ("---",) * len(head), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
