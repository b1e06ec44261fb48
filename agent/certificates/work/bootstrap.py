"""TLS bootstrap: from a bootstrap token to this node's own client certificate.

Follows pkg/kubelet/certificate/bootstrap: when the kubeconfig is not usable, the node requests a certificate with the
bootstrap credentials. agent/build/credentials.py decides whether it is needed and writes the kubeconfig.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agent.certificates import plan
from agent.certificates.model import KeyAndRequest, Pair, Template
from agent.certificates.plan import Pending, Signer
from agent.certificates.work.rotation import Requests, Store, obtain
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Permanent, Temporary
from nodelib.kube.client import ApiError

log = logging.getLogger(__name__)


class FirstKey(Protocol):
    """The key of the first request (certificates/edge/certificate_store.py KeyFile). Blocking."""

    def get(self) -> bytes: ...

    def remove(self) -> None: ...


@dataclass(frozen=True, slots=True)
class BootstrapEdges:
    """What a bootstrap needs; `requests` uses the bootstrap credentials."""

    requests: Requests
    store: Store
    key: FirstKey
    make: Callable[[Template, bytes], KeyAndRequest]
    public_key: Callable[[bytes], bytes]
    clock: Clock


async def first_certificate(node: str, edges: BootstrapEdges) -> Pair:
    """Request the certificate and wait for it; temporary problems (no API server yet, no approval yet) are retried.

    Raises Permanent when the credentials are refused, the request is denied, or the clocks disagree.
    """
    pause, last = Backoff(1.0, 16.0, jitter=0.1), ""
    while True:
        try:
            return await _once(node, edges)
        except (Temporary, ApiError) as error:
            if str(error) != last:
                log.warning("bootstrap: %s", error)
            last, asked = str(error), error.retry_after
        await edges.clock.sleep(pause.next(asked))


async def _once(node: str, edges: BootstrapEdges) -> Pair:
    key = await asyncio.to_thread(edges.key.get)
    name = plan.bootstrap_name(await asyncio.to_thread(edges.public_key, key), node)
    made = await asyncio.to_thread(edges.make, plan.client_template(node), key)
    try:
        chain = await obtain(edges.requests, plan.request(Signer.CLIENT, made.request, name=name), _log_progress)
    except NodewrightError as error:
        if f"CertificateSigningRequest {name}" == error.obj and isinstance(error, Permanent):
            # A denied request stays denied, so the next try needs another key.
            await asyncio.to_thread(edges.key.remove)
        raise
    pair = await asyncio.to_thread(edges.store.update, chain, made.key)
    await asyncio.to_thread(edges.key.remove)
    problem = plan.clock_problem(pair.leaf, edges.clock.now())
    if problem:
        raise Permanent(f"the certificate was issued, but {problem}", obj=f"node {node}", step="bootstrap")
    log.info("bootstrap: client certificate of %s in %s", pair.leaf.subject.common_name, pair.path)
    return pair


def _log_progress(pending: Pending) -> None:
    log.warning("bootstrap: %s", pending.message)
