"""Asks upstream's modules for the facts, with the versions of a cluster's binaries, and joins them with the answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.config.bind import bindings
from agent.config.flags import FIELD_FLAGS
from agent.config.load import switched_gates
from agent.settings import Settings
from controlplane.binaries.edge.go_folders import go_folders
from controlplane.binaries.edge.go_run import list_packages
from controlplane.binaries.edge.toolchain import build_environment, find_go
from controlplane.binaries.model import COMPILER, CONTROL_PLANE, KUBERNETES_VERSION
from controlplane.binaries.work import MODULES
from controlplane.compatibility.model import Program, Row
from controlplane.compatibility.plan.facts import (
    constants,
    declares_gates,
    files,
    gates_read,
    is_node_package,
    pod_file,
)
from controlplane.compatibility.plan.page import page, replaced, summary
from controlplane.compatibility.plan.rows import gate_rows, program
from nodelib.command import CommandError, run_sync
from nodelib.errors import Permanent
from nodelib.files import replace
from nodelib.upstream import answers
from proxy.config.flags import IGNORED_FLAGS, SETTING_FLAGS

_SOURCES = Path(__file__).parent / "upstream"
_COMMON = _SOURCES / "common.go"
_POD = _SOURCES / "pod.go"
_PROGRAMS = {"kubelet": _SOURCES / "kubelet.go", "kube-proxy": _SOURCES / "kube_proxy.go"}
_ROOT = Path(__file__).parents[2]
FACTS = _ROOT / "nodelib/upstream/facts"
PAGE = _ROOT / "docs/compatibility.md"
FEATURES = _ROOT / "docs/features.md"
_TIMEOUT = 1800.0  # seconds; Go compiles half of a kubelet for it


def upstream_facts(cache_dir: Path, progress: Callable[[str], None]) -> dict[str, str]:
    """Name and text of each file of nodelib/upstream/facts, as upstream's modules have it now.

    Kept in the cache for as long as neither the modules nor the program change: asking takes minutes. Raises Permanent
    with what Go says.
    """
    kept = cache_dir / "compatibility" / f"{_key()}.json"
    if not kept.exists():
        progress("asking upstream's modules for gates, fields and flags: Go compiles for some minutes")
        try:
            found = _asked(cache_dir, progress)
        except CommandError as error:
            raise Permanent(
                error.message,
                obj=str(_SOURCES),
                step="run it with upstream's modules",
                action="Fix what Go reports: a full disk and an unreachable module proxy are the usual causes.",
            ) from error
        kept.parent.mkdir(parents=True, exist_ok=True)
        replace(str(kept), json.dumps(found))
    known: dict[str, str] = json.loads(kept.read_text(encoding="utf-8"))
    return known


def programs() -> tuple[Program, ...]:
    """Both programs, with every field and flag that upstream's have."""
    kubelet = program(
        "kubelet",
        answers.facts("kubelet"),
        answers.field_answers("kubelet"),
        answers.flag_answers("kubelet"),
        {name: path for name, (path, _) in FIELD_FLAGS.items()},
        settings_of(Settings).get,
    )
    sets = {**{name: path for name, (path, _) in SETTING_FLAGS.items()}, **IGNORED_FLAGS}
    proxy = program(
        "kube-proxy",
        answers.facts("kube-proxy"),
        answers.field_answers("kube-proxy"),
        answers.flag_answers("kube-proxy"),
        sets,
        lambda source: None,
    )
    return kubelet, proxy


def node_gates() -> tuple[Row, ...]:
    """The feature gates of a node's programs."""
    return gate_rows(answers.facts("gates"), answers.gate_answers(), switched_gates())


def compatibility_page() -> str:
    """docs/compatibility.md as the facts and the answers have it now."""
    rows = node_gates()
    return page(KUBERNETES_VERSION, programs(), rows, len(answers.gates()) - len(rows))


def features_page() -> str:
    """docs/features.md with the counts as they are now."""
    return replaced(FEATURES.read_text(encoding="utf-8"), summary(programs(), node_gates()))


def settings_of(kind: type[Any]) -> dict[str, str]:
    """By field path, --flag or gate: the settings that are made from it, as "ServerSettings.port"."""
    found: dict[str, list[str]] = {}
    for owner, name, source in bindings(kind):
        for each in source.sources:
            found.setdefault(each, []).append(f"{owner.__name__}.{name}")
    return {source: ", ".join(names) for source, names in found.items()}


def _asked(cache_dir: Path, progress: Callable[[str], None]) -> dict[str, str]:
    go, module = find_go(cache_dir, progress), MODULES / CONTROL_PLANE.module
    with go_folders(cache_dir, progress) as folders:
        environment = build_environment(go, folders)

        def run(*files: Path) -> Any:
            command = [str(go), "run", *COMPILER, *map(str, files)]
            return json.loads(run_sync(command, timeout=_TIMEOUT, env=environment, cwd=str(module)).text)

        printed = {name: run(_COMMON, file) for name, file in _PROGRAMS.items()}
        pod = run(_POD)
        programs = [f"k8s.io/kubernetes/cmd/{name}" for name in _PROGRAMS]
        packages = list_packages(
            [str(go), "list", "-deps", "-json=ImportPath,Dir,GoFiles", *programs], cwd=module, env=environment
        )
        read: dict[str, set[str]] = {}
        names: dict[str, str] = {}
        for package in packages:
            path = package["ImportPath"]
            if declares_gates(path):
                for source in _sources(package):
                    names.update(constants(source))
            if is_node_package(path):
                read[path] = {name for source in _sources(package) for name in gates_read(source)}
    return {**files(KUBERNETES_VERSION, printed, read, names), "pod": pod_file(KUBERNETES_VERSION, pod)}


def _sources(package: Mapping[str, Any]) -> Iterator[str]:
    for name in package.get("GoFiles", ()):
        yield Path(package["Dir"], name).read_text(encoding="utf-8")


def _key() -> str:
    module = MODULES / CONTROL_PLANE.module
    own = (Path(__file__), Path(__file__).parent / "plan/facts.py", _COMMON, _POD, *_PROGRAMS.values())
    read = (*own, module / "go.mod", module / "go.sum")
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in read)).hexdigest()[:16]
