"""The result of ADD (section "Success"), and the entries of a prevResult. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_interface

from cni.model import Interface
from cni.spec.errors import config_error
from cni.spec.versions import number
from nodelib.json_values import Json


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a successful ADD in terms of 1.x. `as_json` converts it to the requested version."""

    interfaces: tuple[Json, ...]
    ips: tuple[Json, ...]
    routes: tuple[Json, ...]
    dns: Json = field(default_factory=dict)

    def as_json(self, version: str) -> Json:
        ips = [dict(ip) for ip in self.ips]
        if number(version) < (1, 0, 0):
            for ip in ips:  # "version" was required until 0.4.0; 1.0.0 removed it
                ip["version"] = "6" if ":" in str(ip["address"]) else "4"
        body: Json = {
            "cniVersion": version,
            "interfaces": [dict(item) for item in self.interfaces],
            "ips": ips,
            "dns": dict(self.dns),
        }
        if self.routes:
            body["routes"] = [dict(item) for item in self.routes]
        return body


def interface_of(item: Json) -> Interface:
    """The address of one entry of a result's `ips`."""
    try:
        return ip_interface(str(item.get("address")))
    except ValueError as error:
        raise config_error("prevResult.ips.address", item.get("address"), "an address in CIDR form") from error
