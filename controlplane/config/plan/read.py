"""From the text of a file to what it wants, or to errors that name file, line, field and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from controlplane.config.model import Custom, Member, Mirror, Mount, Port, Ranges, Registry, Taint, Wanted
from controlplane.config.plan.document import DOCUMENT
from controlplane.config.plan.fields import Path, Problem, path_text
from controlplane.config.plan.other_formats import in_ours, tool_of
from nodelib import quantity, safe_yaml
from nodelib.errors import Invalid
from nodelib.text import one_line

LIMITS = safe_yaml.Limits(size=1 << 18, values=10_000, depth=20, unique_keys=True)
_STEP = "read the cluster's file (nothing was changed)"
_MOST = 10  # problems that are shown at once
_NETWORKING = {
    "ipFamily": "ip_family",
    "proxyMode": "proxy_mode",
    "networkPolicy": "network_policy",
    "loadBalancer": "load_balancer",
    "loadBalancerPool": "load_balancer_pool",
    "routed": "routed",
    "uplink": "uplink",
}
_KUBEADM = {"controlPlanes": "control_planes", "joined": "joined", "network": "network"}
_OPTIONS = ("kubernetes", "cpus", "agent", "proxy", "storage", "demo", "durable")


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was read: its name, its values, and its nodes, by which lines are found."""

    file: str
    values: Mapping[str, Any]
    root: yaml.Node

    def errors(self, problems: Iterable[Problem]) -> Exception | None:
        """All problems as one exception to raise, the first ones if there are many; None without any."""
        found = [self._error(problem) for problem in problems]
        if len(found) > _MOST:
            more = Invalid(
                f"there are {len(found) - _MOST} more", obj=self.file, step=_STEP, action="Mend these first."
            )
            found = [*found[:_MOST], more]
        if len(found) < 2:
            return found[0] if found else None
        return ExceptionGroup("the file of the cluster", found)

    def _error(self, problem: Problem) -> Invalid:
        place = f"{self.file}, line {line_of(self.root, problem.path)}"
        return Invalid(
            f"{path_text(problem.path) or 'the file'}: {problem.text}", obj=place, step=_STEP, action=problem.action
        )


def parse(text: str, file: str) -> Source:
    """Read and check a file. Raises Invalid, or a group of them, for whatever is wrong with its fields."""
    file = one_line(file, 200)
    try:
        values = safe_yaml.load(text, LIMITS)
        nodes = list(safe_yaml.compose_all(text, LIMITS))
    except yaml.MarkedYAMLError as error:
        line = safe_yaml.line(error, text)
        place = f"{file}, line {line}" if line else file
        raise Invalid(
            one_line(safe_yaml.problem(error), 300), obj=place, step=_STEP, action="Correct the YAML there."
        ) from error
    except yaml.YAMLError as error:
        raise Invalid(one_line(f"not YAML: {error}", 300), obj=file, step=_STEP, action="Give a YAML file.") from error
    if not isinstance(values, dict):
        raise Invalid(
            "holds no mapping",
            obj=file,
            step=_STEP,
            action="Begin with what `./nodewright up --print-config` prints.",
        )
    if tool := tool_of(values):
        ours = in_ours(tool, values)
        raise Invalid(
            f"this is a file for {tool}, whose format is another one",
            obj=file,
            step=_STEP,
            action=f"The same for `./nodewright up --config`:\n{ours}".rstrip()
            if ours
            else "Begin with what `./nodewright up --print-config` prints; docs/config.md names what differs.",
        )
    source = Source(file, values, nodes[0])
    if wrong := source.errors(DOCUMENT.check(values, ())):
        raise wrong
    return source


def line_of(node: yaml.Node, path: Path) -> int:
    """The line of a field, from 1; of what is missing, that of the mapping it is missing in."""
    line = int(node.start_mark.line)
    for part in path:
        found: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if str(key.value) == str(part):
                    found, line = value, int(key.start_mark.line)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            found = node.value[part]
            line = int(found.start_mark.line)
        if found is None:
            break
        node = found
    return line + 1


def wanted(values: Mapping[str, Any]) -> Wanted:
    """What the values of a checked file ask for."""
    networking = values.get("networking") or {}
    members = _members(values.get("nodes"))
    return Wanted(
        name=values.get("name") or "",
        options=_options(values, networking),
        members=members,
        custom=_custom(values),
        ranges=Ranges(
            networking.get("nodeSubnet") or "", networking.get("podSubnet") or "", networking.get("serviceSubnet") or ""
        ),
        images=values.get("images") or "",
        binaries=values.get("binaries") or "",
    )


def _options(values: Mapping[str, Any], networking: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: values[name] for name in _OPTIONS if values.get(name) is not None}
    found |= {ours: networking[name] for name, ours in _NETWORKING.items() if networking.get(name) is not None}
    if (kubeadm := values.get("kubeadm")) is not None:
        found["kubeadm"] = True
        found |= {ours: kubeadm[name] for name, ours in _KUBEADM.items() if kubeadm.get(name) is not None}
    if (nodes := values.get("nodes")) is not None:
        found["nodes"] = len(nodes) if isinstance(nodes, list) else nodes
    if values.get("memory") is not None:
        found["memory"] = quantity.value(values["memory"])
    if values.get("addons") is not None:
        found["addons"] = ",".join(values["addons"])
    return found


def _members(nodes: Any) -> tuple[Member, ...]:
    return tuple(_member(one) for one in nodes) if isinstance(nodes, list) else ()


def _member(entry: Mapping[str, Any]) -> Member:
    return Member(
        name=entry["name"],
        labels=dict(entry.get("labels") or {}),
        taints=tuple(Taint(one["key"], one["effect"], one.get("value") or "") for one in entry.get("taints") or ()),
        cpus=entry.get("cpus") or 0,
        memory=quantity.value(entry["memory"]) if entry.get("memory") else 0,
        mounts=tuple(
            Mount(one["hostPath"], one["nodePath"], bool(one.get("readOnly"))) for one in entry.get("mounts") or ()
        ),
        kubelet=dict(entry.get("kubelet") or {}),
    )


def _custom(values: Mapping[str, Any]) -> Custom:
    return Custom(
        ports=tuple(
            Port(one["hostPort"], one["nodePort"], one.get("listenAddress") or Port(0, 0).listen, one.get("node") or "")
            for one in values.get("ports") or ()
        ),
        api_server=_arguments(values.get("apiServer")),
        controller_manager=_arguments(values.get("controllerManager")),
        scheduler=_arguments(values.get("scheduler")),
        feature_gates=dict(values.get("featureGates") or {}),
        kubelet=dict(values.get("kubelet") or {}),
        registries=tuple(_registry(one) for one in values.get("registries") or ()),
    )


def _arguments(program: Mapping[str, Any] | None) -> dict[str, str]:
    found = (program or {}).get("args") or {}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in found.items()}


def _registry(entry: Mapping[str, Any]) -> Registry:
    login = entry.get("login") or {}
    return Registry(
        host=entry["host"],
        mirrors=tuple(
            Mirror(one["url"], one.get("caFile") or "", bool(one.get("skipVerify")))
            for one in entry.get("mirrors") or ()
        ),
        username=login.get("username") or "",
        password_file=login.get("passwordFile") or "",
        password_env=login.get("passwordEnv") or "",
    )
