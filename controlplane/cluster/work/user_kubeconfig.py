"""Puts a cluster's entries into the user's kubeconfig, and takes exactly these out again, as kind does.

Which files have them is written down in the cluster's directory before they are changed: `down` finds them from
another shell, too, and a later `up` or `start` brings the same files up to date. Nothing here is worth a failure: a
file that cannot be changed is left as it is, and the reason is returned.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from controlplane.cluster.edge import user_file
from controlplane.cluster.model import Cluster
from controlplane.cluster.plan import user_kubeconfig as plan
from controlplane.machine.edge import files
from nodelib.errors import NodewrightError
from nodelib.files import text_of

_RECORD = "kubeconfigs.json"
_AUTHORITIES = "kubeconfig-authorities.json"
_MOST_AUTHORITIES = 100


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file: its current context, or the problem with it."""

    path: str
    current: str = ""
    problem: str = ""


def choose(cluster: Cluster, option: str | None, variable: str) -> tuple[str, ...]:
    """The files that get the entries, which are written down: a later `up` keeps to them, also if this one fails.

    The file that `option` names, "" none. None: those that have had them, at first the one that $KUBECONFIG, given as
    `variable`, or the home directory has.
    """
    known = _recorded(cluster.dir)
    if option is None and known is not None:
        return known
    path = plan.chosen_file(option, _of_users(cluster, variable), user_file.home(), user_file.is_file)
    chosen = (os.path.abspath(path),) if path else ()
    _record(cluster, tuple(dict.fromkeys((*(known or ()), *chosen))))
    return chosen


def remove(cluster: Cluster) -> tuple[Outcome, ...]:
    """Take the entries out of every file that has had them. Returns the files that could not be changed."""
    known = {*_authorities(cluster.dir), _authority(text_of(cluster.admin_kubeconfig))}
    outcomes = [_removed(path, cluster.context, known) for path in _recorded(cluster.dir) or ()]
    return tuple(one for one in outcomes if one.problem)


def _of_users(cluster: Cluster, variable: str) -> str:
    """$KUBECONFIG without the clusters' own files (`export KUBECONFIG=$(nodewright kubeconfig)`)."""
    listed = [path for path in variable.split(":") if path]
    kept = [path for path in listed if not os.path.realpath(path).startswith(f"{os.path.realpath(cluster.root)}/")]
    return ":".join(kept)


def merge(cluster: Cluster, paths: Iterable[str]) -> tuple[Outcome, ...]:
    """Put the entries into these files, which `choose` has written down."""
    own, known = text_of(cluster.admin_kubeconfig), _authorities(cluster.dir)
    now = _authority(own)
    if now and now not in known:
        known = [*known, now][-_MOST_AUTHORITIES:]
        files.write_if_changed(os.path.join(cluster.dir, _AUTHORITIES), json.dumps(known))
    return tuple(_merged_into(path, cluster.context, own, known) for path in paths)


def _merged_into(path: str, name: str, own: str, known: Collection[str]) -> Outcome:
    problems: list[str] = []
    with _noting(path, problems), user_file.locked(path):
        before = user_file.read(path)
        merged = plan.merge(before, path, name, own, known)
        if merged.text != before:
            user_file.write(path, merged.text, before)
        return Outcome(path, merged.current)
    return Outcome(path, problem=problems[0])


def _removed(path: str, name: str, known: Collection[str]) -> Outcome:
    problems: list[str] = []
    if not user_file.is_file(path):
        return Outcome(path)
    with _noting(path, problems), user_file.locked(path):
        before = user_file.read(path)
        left = plan.without(before, path, name, known)
        if left is not None:
            user_file.write(path, left, before)
    return Outcome(path, problem="".join(problems))


@contextlib.contextmanager
def _noting(path: str, problems: list[str]) -> Iterator[None]:
    """Turns an error of the block into a text."""
    try:
        yield
    except NodewrightError as error:
        problems.append(f"{path}: {error.message}. {error.action}".rstrip())
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{path}: it was left as it is: {error}")


def _recorded(folder: str) -> tuple[str, ...] | None:
    """The files that have had the entries; None when `up` has not come to that yet."""
    try:
        with open(os.path.join(folder, _RECORD), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else None


def _authority(own: str) -> str:
    """Of our own file; "" when it is damaged, which must not keep `down` from its work."""
    try:
        return plan.authority(own)
    except NodewrightError:
        return ""


def _authorities(folder: str) -> list[str]:
    """The digests of the authorities that this cluster has had: a new one does not make its old entries another's."""
    try:
        found = json.loads(text_of(os.path.join(folder, _AUTHORITIES)) or "[]")
    except ValueError:
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _record(cluster: Cluster, paths: tuple[str, ...]) -> None:
    files.write_if_changed(os.path.join(cluster.dir, _RECORD), json.dumps(paths))
