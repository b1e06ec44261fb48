"""Reads a kubelet's API at :10250 (its pods, the runtime's share of its time, which pods it probes), the same for ours
and the peer's; and the API server's metrics of the calls that a pod's start needs.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from typing import NamedTuple

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.tls import tls_context

_STARTING = {"run_podsandbox", "create_container", "start_container"}
# (verb, resource, subresource) of the calls from a pod's creation until it is shown as Ready.
_CALLS = {("POST", "pods", ""), ("POST", "serviceaccounts", "token"), ("PATCH", "pods", "status")}


class CallTime(NamedTuple):
    """How many calls of one kind the API server has served since its start, and in how many seconds."""

    seconds: float = 0
    calls: float = 0


async def api_calls(access: ClusterAccess) -> dict[str, CallTime]:
    """The API server's call times by kind of call. Raises aiohttp.ClientError."""
    connector = aiohttp.TCPConnector(ssl=tls_context(access))
    async with aiohttp.ClientSession(access.server, connector=connector) as session, session.get("/metrics") as answer:
        answer.raise_for_status()
        return calls_in(await answer.text())


def calls_in(metrics: str) -> dict[str, CallTime]:
    """The call times in the API server's /metrics, by VERB/resource/subresource."""
    found: dict[str, CallTime] = {}
    for name, labels, value in _parsed(metrics):
        kind = (labels.get("verb", ""), labels.get("resource", ""), labels.get("subresource", ""))
        known = found.get("/".join(kind), CallTime())
        if kind in _CALLS and name == "apiserver_request_duration_seconds_sum":
            found["/".join(kind)] = known._replace(seconds=known.seconds + value)
        elif kind in _CALLS and name == "apiserver_request_duration_seconds_count":
            found["/".join(kind)] = known._replace(calls=known.calls + value)
    return found


def seconds_of_one_each(before: dict[str, CallTime], after: dict[str, CallTime]) -> float:
    """The sum, over the kinds, of the mean seconds of the calls between the two readings."""
    made = [(now, before.get(kind, CallTime())) for kind, now in after.items()]
    return sum((now.seconds - then.seconds) / (now.calls - then.calls) for now, then in made if now.calls > then.calls)


class KubeletApi:
    """A client of the kubelet's API, with the API server's certificate. Call close() at the end."""

    def __init__(self, address: str, client_cert: tuple[str, str]) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(*client_cert)
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        self._session = aiohttp.ClientSession(f"https://{address}:10250", connector=connector)

    async def close(self) -> None:
        await self._session.close()

    async def running(self) -> set[str]:
        """Names of the pods whose containers all run; empty while the kubelet does not answer."""
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with self._session.get("/pods") as answer:
                if answer.status == 200:
                    items = (await answer.json())["items"] or []
                    return {one["metadata"]["name"] for one in items if _runs(one)}
        return set()

    async def probed(self) -> set[str]:
        """Names of the pods that it has probed; empty while it does not answer."""
        found = await self._samples("/metrics/probes")
        return {labels["pod"] for name, labels, _ in found if name == "prober_probe_total"}

    async def starting_seconds(self) -> float:
        """Seconds that the runtime took since its start for the three calls that start a pod."""
        return sum(
            value
            for name, labels, value in await self._samples("/metrics")
            if name == "kubelet_runtime_operations_duration_seconds_sum" and labels["operation_type"] in _STARTING
        )

    async def _samples(self, path: str) -> list[tuple[str, dict[str, str], float]]:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with self._session.get(path) as answer:
                if answer.status == 200:
                    return list(_parsed(await answer.text()))
        return []


def _parsed(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, dict(sample.labels), sample.value


def _runs(pod: Json) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return bool(statuses) and all("running" in (one.get("state") or {}) for one in statuses)
