"""Whether a cluster serves a custom resource, by a watch of its definition.

So nothing is asked of the API server, and nothing is logged, where the resource is not installed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from nodelib.json_values import Json, object_or_empty, objects_in
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector

log = logging.getLogger(__name__)

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Definition:
    """`served` is set while there is a definition that the API server has accepted with that version, `gone` else.

    `run` its `reflector`. The API server serves the resource some time after its definition says so.
    """

    def __init__(
        self,
        client: KubeClient,
        group: str,
        version: str,
        plural: str,
        *,
        on_state: Callable[[str], None] | None = None,
    ) -> None:
        self.served, self.gone = asyncio.Event(), asyncio.Event()
        self.params = {"fieldSelector": f"metadata.name={plural}.{group}"}
        self._plural, self._version = plural, version
        self.reflector = Reflector(
            client, CRDS, name=f"CRD of {plural}", params=self.params, on_change=self._changed, on_state=on_state
        )

    def _changed(self, kind: str, obj: Json, _: Json | None) -> None:
        if kind != "DELETED" and _serves(obj, self._version):
            self.gone.clear()
            self.served.set()
            return
        if kind != "DELETED":
            log.info("%s are not served in version %s (yet)", self._plural, self._version)
        self.served.clear()
        self.gone.set()


def _serves(crd: Json, version: str) -> bool:
    """Whether the definition is established and has that version."""
    spec, status = object_or_empty(crd.get("spec")), object_or_empty(crd.get("status"))
    served = any(one.get("name") == version and one.get("served") is True for one in objects_in(spec.get("versions")))
    return served and any(
        one.get("type") == "Established" and one.get("status") == "True" for one in objects_in(status.get("conditions"))
    )
