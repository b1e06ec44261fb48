"""Finds the service port whose rule iptables-restore refused. Pure."""

from __future__ import annotations

from proxy.model import Desired, ServicePortName
from proxy.plan.iptables.names import chain_names, endpoint_chain, is_service_chain


def refused_port(line: str, desired: Desired) -> ServicePortName | None:
    """The port that `line` belongs to, by its chain, else by the comment that every rule of a port begins with."""
    words = line.replace('"', "").split()
    chain = next((word.lstrip(":") for word in words[:2] if is_service_chain(word.lstrip(":"))), "")
    comment = words[words.index("--comment") + 1] if "--comment" in words[:-1] else ""
    for name, port in desired.ports.items():
        if chain:
            own = {*chain_names(port), *(endpoint_chain(port, str(one)) for one in desired.endpoints.get(name, ()))}
            if chain in own:
                return name
        elif comment == str(name) and (port.protocol in words or "-p" not in words):
            return name
    return None
