"""Merges files, drop-ins, flags and defaults into one complete, checked configuration (field path -> value)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from agent.common.model.binding import gate_source
from agent.common.model.durations import seconds
from agent.config.bind import bound
from agent.config.decode import Document, decode, flatten
from agent.config.flags import Flags
from agent.config.managers import with_reserved_cpus
from agent.config.rules import BEHIND_GATES, JSON_GATE, problems
from agent.config.schema import DEFAULT_EVICTION_HARD, FIELDS, LONGEST_RESTART_PERIOD, VERIFICATION_POLICY
from agent.settings import Settings
from nodelib.errors import Invalid
from nodelib.json_values import merge_patch
from nodelib.upstream import answers, gates


def complete(flags: Flags) -> dict[str, Any]:
    """Every field of KubeletConfiguration. Raises Invalid, which names every wrong field with its file and line."""
    config, found = checked(_with_flags(_file_values(flags), flags))
    if found:
        raise _invalid(found, flags)
    return with_reserved_cpus(config)


def checked(given: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The given fields completed by defaults, and (field path, problem) of all that is wrong with them."""
    on = gates.enabled(given.get("featureGates") or {}, answers.gates())
    config = _with_defaults(given, on)
    return config, problems(config, on)


def notices(config: Mapping[str, Any], flags: Flags) -> tuple[str, ...]:
    """One line for each thing that was configured and is not done, and what happens instead."""
    why = answers.field_answers("kubelet")
    lines = [f"--{name} is accepted without effect: {instead}" for name, instead in flags.inert.items()]
    lines += [
        f"{path} is not supported: {why[path].instead}"
        for path, entry in FIELDS.items()
        if not entry.obeyed
        and not _equal(config[path], entry.default)
        and (entry.equivalent is None or config[path] != entry.equivalent)
    ]
    known, said = answers.gates(), answers.gate_answers()
    return (*lines, *gates.notices(config["featureGates"], known, said, switched_gates()))


def switched_gates() -> frozenset[str]:
    """The feature gates that change something here."""
    settings = bound(Settings)
    return frozenset({*BEHIND_GATES, JSON_GATE}) | {name for name in answers.gates() if gate_source(name) in settings}


def enabled_gates(config: Mapping[str, Any]) -> dict[str, bool]:
    """Every feature gate that upstream knows, by the key that a setting is bound to, and whether it is on."""
    on = gates.enabled(config["featureGates"], answers.gates())
    return {gate_source(name): value for name, value in on.items()}


def _equal(value: Any, other: Any) -> bool:
    """Whether two values mean the same. "2m0s" and "2m" do, and so do all empty values."""
    if value == other or (not value and not other):
        return True
    if not isinstance(value, str) or not isinstance(other, str):
        return False
    try:
        return seconds(value) == seconds(other)
    except ValueError:
        return False


def _file_values(flags: Flags) -> dict[str, Any]:
    """The values of --config and the drop-ins of --config-dir, merged, by field path."""
    merged: Any = {}
    name = flags.own["config"]
    names = ([name] if name else []) + _drop_ins(flags.own["config-dir"])
    for file in names:
        merged = merge_patch(merged, decode(_read(file), file).data)
    return flatten(Document(", ".join(names), merged, {}))


def _drop_ins(folder: str) -> list[str]:
    if not folder:
        return []
    if not os.path.isdir(folder):
        raise Invalid("is not a folder", obj=f"--config-dir {folder}", action="Create it, or leave out this flag.")
    found: list[str] = []
    for place, _, names in os.walk(folder):
        found.extend(os.path.join(place, name) for name in names if name.endswith(".conf"))
    return sorted(found, key=lambda path: path.split(os.sep))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(
            str(error),
            obj=path,
            step="read KubeletConfiguration",
            action="Check the path in --config or --config-dir, and that the file is UTF-8 text.",
        ) from error


def _with_flags(values: dict[str, Any], flags: Flags) -> dict[str, Any]:
    gates = {**values.get("featureGates", {}), **flags.fields.get("featureGates", {})}
    return {**values, **flags.fields, **({"featureGates": gates} if gates else {})}


def _with_defaults(values: dict[str, Any], on: Mapping[str, bool]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for path, entry in FIELDS.items():
        value = values.get(path)
        unset = value is None or (entry.zero_is_unset and _is_zero(value))
        config[path] = entry.default if unset else value
    given = {path for path in values if not _is_zero(values[path])}
    if "nodeStatusUpdateFrequency" in given and "nodeStatusReportFrequency" not in given:
        config["nodeStatusReportFrequency"] = config["nodeStatusUpdateFrequency"]
    hard = config["evictionHard"]
    if hard is None:
        config["evictionHard"] = dict(DEFAULT_EVICTION_HARD)
    elif config["mergeDefaultEvictionSettings"]:
        config["evictionHard"] = {**DEFAULT_EVICTION_HARD, **hard}
    if config["serializeImagePulls"] is None:
        config["serializeImagePulls"] = (config["maxParallelImagePulls"] or 0) < 2
    if on["KubeletCrashLoopBackOffMax"] and config["crashLoopBackOff.maxContainerRestartPeriod"] is None:
        config["crashLoopBackOff.maxContainerRestartPeriod"] = LONGEST_RESTART_PERIOD
    if on["KubeletEnsureSecretPulledImages"] and not config["imagePullCredentialsVerificationPolicy"]:
        config["imagePullCredentialsVerificationPolicy"] = VERIFICATION_POLICY
    if config["podPidsLimit"] < 0:
        config["podPidsLimit"] = -1
    return config


def _is_zero(value: Any) -> bool:
    if isinstance(value, str) and value:
        try:
            return seconds(value) == 0
        except ValueError:
            return False
    return not value


def _invalid(found: list[tuple[str, str]], flags: Flags) -> Invalid:
    """One error for all problems, each with the place of its field: file and line, or the command line."""
    shown = []
    places = _locations(flags)
    for path, problem in found:
        top = path.split("[")[0]
        place = "the command line" if top in flags.fields else places.get(path) or places.get(top, "")
        shown.append(f"{path}: {problem}" + (f" ({place})" if place else ""))
    source = flags.own["config"] or flags.own["config-dir"] or "command line"
    return Invalid(
        "; ".join(shown),
        obj=source,
        step="check KubeletConfiguration",
        action="Correct these fields and start the agent again; nothing was changed.",
    )


def _locations(flags: Flags) -> dict[str, str]:
    places: dict[str, str] = {}
    name = flags.own["config"]
    for file in ([name] if name else []) + _drop_ins(flags.own["config-dir"]):
        document = decode(_read(file), file)
        places.update({path: f"{file}, line {line}" for path, line in document.lines.items()})
    return places
