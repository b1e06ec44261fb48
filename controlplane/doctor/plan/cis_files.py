"""CIS Kubernetes Benchmark 4.1: modes and owners of a worker node's configuration files. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from controlplane.doctor.model import FileFact, NodeFacts
from controlplane.doctor.plan.verdict import Verdict, bad, good, unknown

_PRIVATE, _READABLE = 0o600, 0o644
_NO_START = "neither a unit file nor a supervisor's specification starts this kubelet"


def starts_are_private(facts: NodeFacts) -> Verdict:
    return _modes(facts.starts, _PRIVATE, _NO_START)


def starts_are_root_s(facts: NodeFacts) -> Verdict:
    return _owners(facts.starts, _NO_START)


def kubeconfig_is_private(facts: NodeFacts) -> Verdict:
    return _modes(facts.kubeconfig, _PRIVATE, "the kubelet runs without --kubeconfig")


def kubeconfig_is_root_s(facts: NodeFacts) -> Verdict:
    return _owners(facts.kubeconfig, "the kubelet runs without --kubeconfig")


def configs_are_private(facts: NodeFacts) -> Verdict:
    return _modes(facts.configs, _PRIVATE) if facts.configs else good("no file is used, only flags")


def configs_are_root_s(facts: NodeFacts) -> Verdict:
    return _owners(facts.configs) if facts.configs else good("no file is used, only flags")


def authorities_are_protected(facts: NodeFacts) -> Verdict:
    return _modes(facts.authorities, _READABLE, _no_authority(facts))


def authorities_are_root_s(facts: NodeFacts) -> Verdict:
    return _owners(facts.authorities, _no_authority(facts))


def proxy_kubeconfig_is_private(facts: NodeFacts) -> Verdict:
    return _of_proxy(facts) or _modes(facts.proxy.kubeconfigs if facts.proxy else (), _PRIVATE)


def proxy_kubeconfig_is_root_s(facts: NodeFacts) -> Verdict:
    return _of_proxy(facts) or _owners(facts.proxy.kubeconfigs if facts.proxy else ())


def _of_proxy(facts: NodeFacts) -> Verdict | None:
    """The verdict when there is no file to judge."""
    proxy = facts.proxy
    if proxy is None:
        return good("no kube-proxy runs on this node")
    if proxy.in_pod:
        return good("no such file: kube-proxy runs as a pod, its kubeconfig comes from a ConfigMap")
    if not proxy.kubeconfigs:
        return unknown(proxy.problem or "its command line and configuration name no kubeconfig")
    return None


def _no_authority(facts: NodeFacts) -> str:
    return facts.unknown or "no client CA file is configured (4.2.3)"


def _modes(files: Sequence[FileFact], most: int, none: str = "") -> Verdict:
    wrong = [one for one in files if not one.problem and one.mode & ~most]
    shown = {one.path: f"{one.path} has mode {one.mode:04o}" for one in files}
    return _verdict(files, wrong, shown, f"chmod {most:o}", none)


def _owners(files: Sequence[FileFact], none: str = "") -> Verdict:
    wrong = [one for one in files if not one.problem and (one.uid, one.gid) != (0, 0)]
    shown = {one.path: f"{one.path} belongs to {_owner(one)}" for one in files}
    return _verdict(files, wrong, shown, "chown root:root", none)


def _owner(one: FileFact) -> str:
    return "root:root" if (one.uid, one.gid) == (0, 0) else f"{one.uid}:{one.gid}"


def _verdict(
    files: Sequence[FileFact], wrong: Sequence[FileFact], shown: Mapping[str, str], fix: str, none: str
) -> Verdict:
    if wrong:
        # For pasting, on the machine of an administrator: paths are the words of whoever started the kubelet.
        paths = shlex.join(one.path for one in wrong)
        return bad("; ".join(shown[one.path] for one in wrong), f"{fix} {paths}")
    unread = [f"{one.path}: {one.problem}" for one in files if one.problem]
    if unread or not files:
        return unknown("; ".join(unread) or none or "there is no such file")
    return good("; ".join(shown[one.path] for one in files))
