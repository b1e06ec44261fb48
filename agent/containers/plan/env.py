"""The environment of a container.

Follows makeEnvironmentVariables of pkg/kubelet/kubelet_pods.go and pkg/kubelet/envvars:
envFrom first, then env in its order (a value may refer to earlier variables and to service
variables), then the service variables that nothing else has set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.common.model.pod_settings import NodeContext
from agent.common.model.pods import Pod
from agent.common.plan import downward
from agent.common.plan.secrets import decode_secret
from agent.containers.plan.expand import Budget, expand, lookup_in
from agent.volumes.model.sources import CONFIG_MAP, MOST_OBJECTS, SECRET, ObjectRef, create_command
from agent.volumes.plan.services import ports_of
from nodelib.errors import Invalid, NotFound, Permanent
from nodelib.json_values import Json

_KEYS = 10  # that are named
_VARIABLES_OF_PORT = 5
_KINDS = {CONFIG_MAP: "ConfigMap", SECRET: "Secret"}


@dataclass(frozen=True, slots=True)
class EnvSources:
    """What an environment may refer to. `files`: text by (volume, path)."""

    objects: Mapping[ObjectRef, Json | None] = field(default_factory=dict)
    services: Sequence[Json] = ()
    pod_ips: Sequence[str] = ()
    node: NodeContext = field(default_factory=NodeContext)
    files: Mapping[tuple[str, str], str] = field(default_factory=dict)


def references(container: Json) -> set[ObjectRef]:
    """The ConfigMaps and Secrets that the container's environment names. Raises Invalid for too many."""
    found: set[ObjectRef] = set()
    for source in container.get("envFrom") or []:
        for key, kind in (("configMapRef", CONFIG_MAP), ("secretRef", SECRET)):
            if source.get(key):
                found.add(ObjectRef(kind, source[key].get("name", "")))
    for variable in container.get("env") or []:
        origin = variable.get("valueFrom") or {}
        for key, kind in (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)):
            if origin.get(key):
                found.add(ObjectRef(kind, origin[key].get("name", "")))
    if len(found) > MOST_OBJECTS:
        raise Invalid(
            f"the environment of container {container['name']} names {len(found)} ConfigMaps and Secrets,"
            f" more than {MOST_OBJECTS}",
            action="Put the data into fewer objects.",
        )
    return {ref for ref in found if ref.name}


def file_references(container: Json) -> set[tuple[str, str]]:
    """(volume, path) of every fileKeyRef."""
    refs = [(variable.get("valueFrom") or {}).get("fileKeyRef") for variable in container.get("env") or []]
    return {(str(ref.get("volumeName", "")), str(ref.get("path", ""))) for ref in refs if ref}


def environment(pod: Pod, container: Json, sources: EnvSources) -> dict[str, str]:
    """Names to values, in the order they are declared.

    Raises NotFound or Invalid naming what is missing, and Invalid when all of them together are too much text.
    """
    links = pod.spec.get("enableServiceLinks", True)
    budget = Budget()
    service_env = service_variables(sources.services, pod.namespace, links, budget)
    env: dict[str, str] = {}
    for origin in container.get("envFrom") or []:
        _add_all(pod, origin, sources, env, budget)
    lookup = lookup_in(env, service_env)
    for variable in container.get("env") or []:
        name, value = variable["name"], variable.get("value") or ""
        if value:
            env[name] = expand(value, lookup, budget)
            continue
        origin = variable.get("valueFrom")
        found = _from_source(pod, container, name, origin, sources, budget) if origin else ""
        if found is not None:
            budget.variable(name, found)
            env[name] = found
    return env | {name: value for name, value in service_env.items() if name not in env}


def _add_all(pod: Pod, origin: Json, sources: EnvSources, env: dict[str, str], budget: Budget) -> None:
    prefix = origin.get("prefix") or ""
    for field_name, kind in (("configMapRef", CONFIG_MAP), ("secretRef", SECRET)):
        ref = origin.get(field_name)
        if not ref:
            continue
        found = sources.objects.get(ObjectRef(kind, ref.get("name", "")))
        if found is None:
            if ref.get("optional"):
                continue
            raise _missing_object(pod, kind, ref.get("name", ""))
        for key, value in sorted((found.get("data") or {}).items()):
            text = _text(pod, kind, ref["name"], key, value)
            budget.variable(prefix + key, text)
            env[prefix + key] = text


def _from_source(pod: Pod, container: Json, name: str, origin: Json, sources: EnvSources, budget: Budget) -> str | None:
    """The value; None, which leaves the variable out, for an optional source that does not exist."""
    if ref := origin.get("fieldRef"):
        return downward.env_field(pod, ref.get("fieldPath", ""), sources.pod_ips, sources.node)
    if ref := origin.get("resourceFieldRef"):
        return downward.resource_field(pod, ref, sources.node, container)
    if ref := origin.get("configMapKeyRef"):
        return _key(pod, CONFIG_MAP, ref, sources)
    if ref := origin.get("secretKeyRef"):
        return _key(pod, SECRET, ref, sources)
    if ref := origin.get("fileKeyRef"):
        return _file_key(pod, ref, sources, budget)
    raise Invalid(
        f"valueFrom of {name!r} names no source that this agent knows",
        obj=f"pod {pod.full_name}",
        step=f"environment of container {container['name']}",
        action="Use fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef or fileKeyRef.",
    )


def _key(pod: Pod, kind: str, ref: Json, sources: EnvSources) -> str | None:
    name, key = ref.get("name", ""), ref.get("key", "")
    found = sources.objects.get(ObjectRef(kind, name))
    if found is None:
        if ref.get("optional"):
            return None
        raise _missing_object(pod, kind, name)
    data = found.get("data") or {}
    if key in data:
        return _text(pod, kind, name, key, data[key])
    if ref.get("optional"):
        return None
    raise NotFound(
        f"couldn't find key {key} in {_KINDS[kind]} {pod.namespace}/{name}",
        action=f"{_has_keys(kind, name, data)}Add the key, correct it in the pod, or mark the reference optional.",
    )


def _has_keys(kind: str, name: str, data: Json) -> str:
    """Which keys a ConfigMap has; those of a Secret are not told to everybody who may read the pod's events."""
    if kind != CONFIG_MAP or not data:
        return ""
    more = ", ..." if len(data) > _KEYS else ""
    return f"ConfigMap {name} has {', '.join(sorted(data)[:_KEYS])}{more}. "


def _file_key(pod: Pod, ref: Json, sources: EnvSources, budget: Budget) -> str | None:
    volume, path, key = ref.get("volumeName", ""), ref.get("path", ""), ref.get("key", "")
    text = sources.files.get((volume, path))
    value = parse_env_file(budget.take(text), key) if text is not None else ""  # read anew for each reference
    if value:
        return value
    if ref.get("optional"):
        return None
    raise NotFound(
        f"environment variable key {key!r} not found in file {path!r} of volume {volume!r}",
        obj=f"pod {pod.full_name}",
        action="Have an init container write it there as KEY='value', or mark the reference optional.",
    )


def parse_env_file(text: str, key: str) -> str:
    """The value of `key` in lines of NAME='value' (KEP-3721); "" when it is not there. Raises Invalid on bad syntax."""
    lines = iter(enumerate(text.replace("\r\n", "\n").split("\n"), 1))
    for number, line in lines:
        stripped = line.lstrip(" \t")
        if not stripped or stripped.startswith("#"):
            continue
        name, separator, value = stripped.partition("=")
        if not separator or not name or name != name.rstrip(" \t"):
            raise Invalid(f"line {number} is not NAME='value'", step="environment file")
        if value != value.lstrip(" \t"):
            if name == key:
                return ""
            continue
        if not value.startswith("'"):
            raise Invalid(f"line {number}: the value must be enclosed in single quotes", step="environment file")
        content, rest = _quoted(value[1:], lines, number)
        if rest and not rest.startswith("#"):
            raise Invalid(f"line {number}: unexpected content after the closing quote", step="environment file")
        if name == key:
            return content
    return ""


def _quoted(start: str, lines: Iterable[tuple[int, str]], number: int) -> tuple[str, str]:
    content, close, rest = start.partition("'")
    while not close:
        following = next(iter(lines), None)
        if following is None:
            raise Invalid(f"line {number}: the quote is never closed", step="environment file")
        more, close, rest = following[1].partition("'")
        content += "\n" + more
    return content, rest.lstrip(" \t")


def service_variables(
    services: Sequence[Json], namespace: str, links: bool, budget: Budget | None = None
) -> dict[str, str]:
    """Host and port variables of the namespace's Services (if `links`) and, always, of default/kubernetes.

    Raises Invalid when they are more than `budget`: a Service may have 65,000 ports, with five variables each.
    """
    budget = budget or Budget()
    chosen: dict[str, Json] = {}
    for service in services:
        meta, spec = service["metadata"], service.get("spec") or {}
        if not spec.get("clusterIP") or spec["clusterIP"] == "None" or not spec.get("ports"):
            continue
        if meta.get("namespace") == "default" and meta["name"] == "kubernetes":
            chosen.setdefault(meta["name"], spec)
        elif meta.get("namespace") == namespace and links:
            chosen[meta["name"]] = spec
    env: dict[str, str] = {}
    for name, spec in sorted(chosen.items()):
        env |= _variables_of(name, spec, budget)
    return env


def _variables_of(service: str, spec: Json, budget: Budget) -> dict[str, str]:
    prefix, address, ports = _variable_name(service), spec["clusterIP"], ports_of(spec)
    for _ in range(_VARIABLES_OF_PORT * len(ports)):  # before any of them is made
        budget.variable(prefix, address)
    env = {f"{prefix}_SERVICE_HOST": address, f"{prefix}_SERVICE_PORT": str(ports[0]["port"])}
    for port in ports:
        if port.get("name"):
            env[f"{prefix}_SERVICE_PORT_{_variable_name(port['name'])}"] = str(port["port"])
    shown = f"[{address}]" if ":" in address else address
    for index, port in enumerate(ports):
        protocol, number = port.get("protocol") or "TCP", port["port"]
        url = f"{protocol.lower()}://{shown}:{number}"
        if index == 0:
            env[f"{prefix}_PORT"] = url
        stem = f"{prefix}_PORT_{number}_{protocol.upper()}"
        env[stem] = url
        env[f"{stem}_PROTO"] = protocol.lower()
        env[f"{stem}_PORT"] = str(number)
        env[f"{stem}_ADDR"] = address
    return env


def _variable_name(name: str) -> str:
    return name.replace("-", "_").upper()


def _text(pod: Pod, kind: str, name: str, key: str, value: str) -> str:
    if kind == CONFIG_MAP:
        return value
    try:
        return decode_secret(value).decode()
    except UnicodeDecodeError as error:
        raise Permanent(
            f"key {key} of Secret {pod.namespace}/{name} is not UTF-8 text and cannot be an environment variable",
            action="Mount the Secret as a volume instead.",
        ) from error


def _missing_object(pod: Pod, kind: str, name: str) -> NotFound:
    plural = {CONFIG_MAP: "configmap", SECRET: "secret"}[kind]
    command = create_command(kind, pod.namespace, name)
    return NotFound(
        f'{plural} "{name}" not found',
        action=f"Create {_KINDS[kind]} {pod.namespace}/{name} ({command}), or mark the reference optional.",
    )
