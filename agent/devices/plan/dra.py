"""Which ResourceClaims a pod uses, whether it may use them, and which devices its containers get.

Follows pkg/kubelet/cm/dra (manager.go, claiminfo.go) and k8s.io/dynamic-resource-allocation/resourceclaim.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from agent.common.model.pods import Pod
from agent.common.plan import extended_resources
from agent.devices.model.devices import DeviceGrant
from agent.devices.model.dra import ClaimRef, ClaimState, PreparedDevice
from agent.plugins.model import PluginInfo
from nodelib.errors import Invalid, Permanent, Temporary
from nodelib.json_values import Json
from nodelib.json_values import decode as decode_json

CHECKPOINT = "dra_manager_state"
SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")  # the newest first
_MOST_DEVICES, _MOST_NAMES = 1024, 16_384  # that a driver prepares for a claim; the API server stores 32 devices


def service_of(info: PluginInfo) -> str:
    """The newest version of the API that a driver serves. Raises Invalid for none that is known."""
    found = next((one for one in SERVICES if one in info.versions), "")
    if not found:
        raise Invalid(
            f"none of the gRPC services {list(info.versions)} is supported",
            obj=f"DRA driver {info.name}",
            step="register",
            action=f"Use a driver that serves {' or '.join(SERVICES)} (Kubernetes 1.32 and newer).",
        )
    return found


def claim_names(pod: Pod) -> dict[str, str]:
    """Names of the claims by their names in the pod; "": of its extended resources, if they are mapped to one.

    Left out: entries whose template needed no claim.

    Raises Temporary while the claim of a template does not exist yet.
    """
    made = {one["name"]: one.get("resourceClaimName") for one in pod.status.get("resourceClaimStatuses") or []}
    found: dict[str, str] = {}
    for entry in pod.spec.get("resourceClaims") or []:
        name = entry["name"]
        if entry.get("resourceClaimName"):
            found[name] = entry["resourceClaimName"]
        elif name not in made:
            raise Temporary(
                f"the ResourceClaim of {name} has not been created yet",
                obj=f"pod {pod.full_name}",
                step="resource claims",
                action="kube-controller-manager creates it from the template; the agent tries again.",
            )
        elif made[name]:
            found[name] = str(made[name])
    extended = extended_resources.claim_name(pod)
    return {**found, "": extended} if extended else found


def claims_to_prepare(pod: Pod) -> dict[str, bool]:
    """Names of the claims, and whether a template has to have made them for this pod.

    Each once: a pod may have thousands of names for one claim. Raises Temporary as claim_names().
    """
    templates = {one["name"] for one in pod.spec.get("resourceClaims") or [] if one.get("resourceClaimTemplateName")}
    found: dict[str, bool] = {}
    for entry, name in claim_names(pod).items():
        found[name] = found.get(name, False) or entry in templates
    return found


def usable(pod: Pod, claim: Json, *, from_template: bool) -> ClaimState:
    """The claim as this pod uses it. Raises Temporary or Permanent when the pod may not use it."""
    meta, status = claim["metadata"], claim.get("status") or {}
    where = f"pod {pod.full_name}"
    if from_template:
        owner: Json = next((one for one in meta.get("ownerReferences") or [] if one.get("controller")), {})
        if owner.get("uid") != pod.uid:
            raise Permanent(f"ResourceClaim {meta['name']} was not made for this pod", obj=where)
    if pod.uid not in {one.get("uid") for one in status.get("reservedFor") or []}:
        raise Temporary(
            f"pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim {meta['name']} ({meta['uid']})",
            obj=where,
            action="The scheduler reserves a claim for the pods that may use it.",
        )
    allocation = status.get("allocation")
    if not allocation:
        raise Temporary(f"ResourceClaim {meta['name']} is not allocated", obj=where, action="The agent tries again.")
    results = (allocation.get("devices") or {}).get("results") or []
    drivers = tuple(dict.fromkeys(one["driver"] for one in results))
    return ClaimState(ClaimRef(meta["namespace"], meta["name"], meta["uid"]), drivers, frozenset({pod.uid}))


def with_pod(known: ClaimState | None, fresh: ClaimState) -> ClaimState:
    """The state of a claim with one more pod. Raises Temporary while an older claim of that name is still in use."""
    if known is None:
        return fresh
    if known.ref != fresh.ref:
        raise Temporary(
            f"old ResourceClaim with same name {fresh.ref.name} and different UID {known.ref.uid} still exists",
            step="resource claims",
            action="The agent tries again once the pod that used it is gone.",
        )
    return ClaimState(known.ref, known.drivers, known.pods | fresh.pods, known.prepared, known.devices)


def prepared_devices(driver: str, answer: Json) -> list[PreparedDevice]:
    """NodePrepareResourceResponse of one claim. Raises Temporary for its error."""
    if answer.get("error"):
        raise Temporary(f"NodePrepareResources failed: {answer['error']}", obj=f"DRA driver {driver}")
    listed = answer.get("devices") or []
    names = sum(len(one["request_names"]) + len(one["cdi_device_ids"]) for one in listed[: _MOST_DEVICES + 1])
    if len(listed) > _MOST_DEVICES or names > _MOST_NAMES:
        # All of them are looked at for each status, and recorded.
        raise Temporary(
            f"NodePrepareResources answers with {len(listed)} devices and {names} names, more than any claim has",
            obj=f"DRA driver {driver}",
            action="See the driver's log.",
        )
    return [
        PreparedDevice(
            driver,
            one["pool_name"],
            one["device_name"],
            tuple(one["request_names"]),
            tuple(one["cdi_device_ids"]),
            one.get("share_id", ""),  # v1beta1 has none
        )
        for one in listed
    ]


def claims_of(pod: Pod, states: Iterable[ClaimState]) -> dict[str, ClaimState]:
    """The claims that are recorded for the pod, by their names in it; of extended resources by "".

    Read once for all containers: a pod may name tens of thousands of claims, whether they exist or not.
    """
    mine = {one.ref.name: one for one in states if one.ref.namespace == pod.namespace and pod.uid in one.pods}
    names = _known_names(pod) if mine else {}
    return {entry: mine[name] for entry, name in names.items() if name in mine}


def devices_of(pod: Pod, container: Json, claims: Mapping[str, ClaimState]) -> list[tuple[ClaimState, PreparedDevice]]:
    """The devices of a container: of each claim that it names, all devices or those of the one request it names; and
    those that stand for its extended resources. `claims`: what claims_of() found.
    """
    extended = [("", one) for one in sorted(extended_resources.requests_of(pod, container))] if "" in claims else []
    named = [(one["name"], one.get("request") or "") for one in container_claims(container)]
    known = [(claims[name], request) for name, request in [*named, *extended] if name in claims]
    # Several names of a pod may be one claim: its devices are the container's once.
    wanted = {(state.ref, request): state for state, request in known}
    return [(state, device) for (_, request), state in wanted.items() for device in devices_for(state, request)]


def container_claims(container: Json) -> list[Json]:
    """What a container has under resources.claims."""
    return (container.get("resources") or {}).get("claims") or []


def devices_for(state: ClaimState, request: str) -> list[PreparedDevice]:
    """All devices of the claim, or those of one of its requests."""
    return [one for one in state.devices if not request or not one.requests or request in _request_names(one.requests)]


def grant(pod: Pod, container: Json, states: Iterable[ClaimState]) -> DeviceGrant:
    """The CDI devices that the container's claims give it."""
    found = devices_of(pod, container, claims_of(pod, states))
    names = (name for _, device in found for name in device.cdi_devices)
    return DeviceGrant(cdi_devices=tuple(dict.fromkeys(names)))


def dynamic_resources(pod: Pod, container: Json, claims: Mapping[str, ClaimState]) -> list[Json]:
    """DynamicResource entries of podresources v1. `claims`: what claims_of() found."""
    made: dict[ClaimRef, list[Json]] = {}
    for state, device in devices_of(pod, container, claims):
        entry = {
            "cdi_devices": [{"name": name} for name in device.cdi_devices],
            "driver_name": device.driver,
            "pool_name": device.pool,
            "device_name": device.device,
        }
        made.setdefault(state.ref, []).append({**entry, **({"share_id": device.share_id} if device.share_id else {})})
    return [
        {"claim_name": ref.name, "claim_namespace": ref.namespace, "claim_resources": found}
        for ref, found in made.items()
    ]


Texts = dict[ClaimRef, tuple[ClaimState, str]]
"""What an earlier checkpoint said of claims."""


def encode(states: Iterable[ClaimState], texts: Texts | None = None) -> str:
    """The checkpoint: all claims that have to be unprepared, also after a restart.

    `texts` is used and renewed: whoever may make claims can have thousands, and all are written for each of them.
    """
    before, texts = dict(texts or {}), texts if texts is not None else {}
    texts.clear()
    for state in sorted(states, key=lambda one: (one.ref.namespace, one.ref.name, one.ref.uid)):
        known = before.get(state.ref)
        texts[state.ref] = known if known is not None and known[0] is state else (state, _entry(state))
    return f'{{"Data": {{"Claims": [{", ".join(text for _, text in texts.values())}]}}}}'


def _entry(state: ClaimState) -> str:
    return json.dumps({**asdict(state), "pods": sorted(state.pods)})


def decode(text: str) -> dict[tuple[str, str], ClaimState]:
    """The claims by namespace and name. Raises Invalid for a file of another shape."""
    try:
        found: dict[tuple[str, str], ClaimState] = {}
        for entry in decode_json(text)["Data"]["Claims"]:
            devices = tuple(_device(one) for one in entry["devices"])
            ref, pods = ClaimRef(**entry["ref"]), frozenset(entry["pods"])
            found[ref.namespace, ref.name] = ClaimState(ref, tuple(entry["drivers"]), pods, entry["prepared"], devices)
        return found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"this is not a checkpoint: {type(error).__name__}: {error}", step="read checkpoint") from error


def _device(one: Mapping[str, object]) -> PreparedDevice:
    return PreparedDevice(**{key: tuple(value) if isinstance(value, list) else value for key, value in one.items()})  # type: ignore[arg-type]


def _known_names(pod: Pod) -> dict[str, str]:
    try:
        return claim_names(pod)
    except Temporary:
        return {}


def _request_names(requests: Iterable[str]) -> set[str]:
    """A device may name REQUEST/SUBREQUEST; containers name only the request."""
    return {name for one in requests for name in (one, one.partition("/")[0])}
