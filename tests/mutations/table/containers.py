"""What a container is started with: environment, mounts, security, DNS."""

from __future__ import annotations

from tests.mutations.model import Mutation

_TESTS = ("unit/agent/containers",)
_ENV, _MOUNTS = "agent/containers/plan/env.py", "agent/containers/plan/mounts.py"
_SECURITY, _CONTAINER = "agent/containers/plan/security.py", "agent/containers/plan/container.py"

TABLE = (
    Mutation(
        "env-file", "environment variables from files (fileKeyRef)",
        _ENV, "return _file_key(pod, ref, sources, budget)", "return None", _TESTS,
    ),
    Mutation(
        "env-from", "envFrom",
        _ENV, 'for origin in container.get("envFrom") or []:', "for origin in ():", _TESTS,
    ),
    Mutation(
        "env-from-prefix", "prefix of envFrom",
        _ENV, 'prefix = origin.get("prefix") or ""', 'prefix = ""', _TESTS,
    ),
    Mutation(
        "env-expansion", "$(NAME) in the value of a variable",
        _ENV, "env[name] = expand(value, lookup, budget)", "env[name] = value", _TESTS,
    ),
    Mutation(
        "env-service-links", "enableServiceLinks",
        _ENV, 'links = pod.spec.get("enableServiceLinks", True)', "links = True", _TESTS,
    ),
    Mutation(
        "command-expansion", "$(NAME) in args",
        _CONTAINER, 'expand_all(container.get("args"), env, budget)', 'list(container.get("args") or ())', _TESTS,
    ),
    Mutation(
        "stop-signal", "lifecycle.stopSignal",
        _CONTAINER, "    if signal:", "    if False:", _TESTS,
    ),
    Mutation(
        "sub-path", "subPath",
        _MOUNTS, 'path = mount.get("subPath") or ""', 'path = ""', _TESTS,
    ),
    Mutation(
        "sub-path-expr", "subPathExpr",
        _MOUNTS, 'if mount.get("subPathExpr"):', "if False:", _TESTS,
    ),
    Mutation(
        "sub-path-confined", "a link in a volume cannot lead a subPath out of it",
        "agent/volumes/edge/subpath.py", "return mounts.open_beneath(base, path, os.O_PATH)",
        "return os.open(os.path.join(volume, path), os.O_PATH)",
        ("netns/test_sub_path_propagation.py", "netns/test_volumes.py", "netns/test_pod_volumes.py"),
    ),
    Mutation(
        "mount-read-only", "readOnly of a volumeMount",
        _MOUNTS, 'read_only=bool(mount.get("readOnly")) or volume.read_only', "read_only=volume.read_only", _TESTS,
    ),
    Mutation(
        "recursive-read-only", "recursiveReadOnly",
        _MOUNTS, "        )\n    return supported", "        )\n    return False", _TESTS,
    ),
    Mutation(
        "mount-propagation", "mountPropagation HostToContainer",
        _MOUNTS, '"PROPAGATION_HOST_TO_CONTAINER"', '"PROPAGATION_PRIVATE"', _TESTS,
    ),
    Mutation(
        "image-volume", "volumes of the kind image",
        _CONTAINER, "    if plan.image:", "    if False:", _TESTS,
    ),
    Mutation(
        "image-volume-sub-path", "subPath of an image volume",
        _MOUNTS, 'image_sub_path=sub_path if volume.image else ""', 'image_sub_path=""', _TESTS,
    ),
    Mutation(
        "raw-block", "volumeDevices",
        _MOUNTS, 'for device in container.get("volumeDevices") or []:', "for device in ():", _TESTS,
    ),
    Mutation(
        "sysctls", "securityContext.sysctls",
        "agent/containers/plan/sysctls.py", '.get("sysctls") or []', '.get("none") or []', _TESTS,
    ),
    Mutation(
        "sysctls-unsafe", "sysctls that are not allowed are refused",
        "agent/admission/plan/admit.py", "    if forbidden:", "    if False:", ("unit/agent/admission",),
    ),
    Mutation(
        "supplemental-groups", "supplementalGroups",
        _SECURITY, '*(context.get("supplementalGroups") or [])', "*()", _TESTS,
    ),
    Mutation(
        "supplemental-groups-policy", "supplementalGroupsPolicy",
        _SECURITY, "if policy is not None:", "if False:", _TESTS,
    ),
    Mutation(
        "seccomp", "seccompProfile of a pod",
        _SECURITY, 'own or (pod.spec.get("securityContext") or {}).get("seccompProfile")', "own", _TESTS,
    ),
    Mutation(
        "seccomp-default", "seccompDefault of the node",
        _SECURITY, '"RuntimeDefault" if settings.seccomp_default else "Unconfined"', '"Unconfined"', _TESTS,
    ),
    Mutation(
        "apparmor", "appArmorProfile",
        _SECURITY, "        **apparmor(pod, container),\n", "", _TESTS,
    ),
    Mutation(
        "run-as-non-root", "runAsNonRoot",
        _SECURITY, "    verify_run_as_non_root(pod, container, image)\n", "", _TESTS,
    ),
    Mutation(
        "privilege-escalation", "allowPrivilegeEscalation: false",
        _SECURITY, 'context.get("allowPrivilegeEscalation") is False', "False", _TESTS,
    ),
    Mutation(
        "capabilities-dropped", "capabilities.drop",
        _SECURITY, 'list(capabilities.get("drop") or [])', "[]", _TESTS,
    ),
    Mutation(
        "proc-mount", "procMount Unmasked",
        _SECURITY, 'unmasked = context.get("procMount") == "Unmasked"', "unmasked = False", _TESTS,
    ),
    Mutation(
        "read-only-root", "readOnlyRootFilesystem",
        _SECURITY, 'bool(context.get("readOnlyRootFilesystem"))', "False", _TESTS,
    ),
    Mutation(
        "share-processes", "shareProcessNamespace",
        _SECURITY, 'elif pod.spec.get("shareProcessNamespace"):', "elif False:", _TESTS,
    ),
    Mutation(
        "dns-config", "dnsConfig",
        "agent/containers/plan/dns.py", '_merged(base, pod.spec.get("dnsConfig") or {})', "_merged(base, {})", _TESTS,
    ),
    Mutation(
        "dns-policy-none", "dnsPolicy None",
        "agent/containers/plan/dns.py", 'if policy == "None":', "if False:", _TESTS,
    ),
    Mutation(
        "dns-limits", "more than three nameservers are cut",
        "agent/containers/plan/dns.py", "dns.servers[:_MAX_SERVERS]", "dns.servers", _TESTS,
    ),
    Mutation(
        "host-aliases", "hostAliases",
        "agent/containers/plan/hosts.py", "if not aliases:", "if True:", _TESTS,
    ),
    Mutation(
        "fqdn-hostname", "setHostnameAsFQDN",
        "agent/containers/plan/hosts.py", 'if not domain or not pod.spec.get("setHostnameAsFQDN"):', "if True:", _TESTS,
    ),
    Mutation(
        "host-name-override", "hostnameOverride",
        "agent/containers/plan/hosts.py", "if override is not None:", "if False:", _TESTS,
    ),
    Mutation(
        "default-sysctls", "defaultPodSysctls",
        "agent/containers/plan/sysctls.py", "for k, v in given.items() if", "for k, v in () if", _TESTS,
    ),
)  # fmt: skip
