"""Host names and /etc/hosts."""

from __future__ import annotations

from typing import Any

import pytest

from agent.containers.plan.hosts import hostname_and_domain, hosts_file, kernel_hostname
from nodelib.errors import Invalid
from tests.builders.pods import pod

LOCAL = (
    "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
)
ALIASES = [{"ip": "192.0.2.1", "hostnames": ["a", "b"]}, {"ip": "192.0.2.2", "hostnames": ["c"]}]
ALIAS_TEXT = "\n# Entries added by HostAliases.\n192.0.2.1\ta\tb\n192.0.2.2\tc\n"


@pytest.mark.parametrize(
    ("spec", "ips", "expected"),
    [
        pytest.param({}, ("10.1.1.1",), LOCAL + "10.1.1.1\tweb\n", id="plain"),
        pytest.param({}, (), None, id="no address yet"),
        pytest.param({}, ("10.1.1.1", "fd::1"), LOCAL + "10.1.1.1\tweb\nfd::1\tweb\n", id="dual stack"),
        pytest.param(
            {"hostname": "h", "subdomain": "s"},
            ("10.1.1.1",),
            LOCAL + "10.1.1.1\th.s.shop.svc.cluster.local\th\n",
            id="hostname and subdomain",
        ),
        pytest.param({"hostAliases": ALIASES}, ("10.1.1.1",), LOCAL + "10.1.1.1\tweb\n" + ALIAS_TEXT, id="aliases"),
        pytest.param(
            {"hostNetwork": True, "hostAliases": ALIASES},
            (),
            "# Kubernetes-managed hosts file (host network).\nNODE\n" + ALIAS_TEXT,
            id="host network",
        ),
    ],
)
def test_hosts_file(spec: dict[str, Any], ips: tuple[str, ...], expected: str | None) -> None:
    assert hosts_file(pod(**spec), ips, "cluster.local", "NODE\n") == expected


@pytest.mark.parametrize(
    ("meta", "spec", "expected"),
    [
        pytest.param({}, {}, ("web", ""), id="pod name"),
        pytest.param({}, {"hostname": "h"}, ("h", ""), id="hostname"),
        pytest.param({}, {"subdomain": "s"}, ("web", "s.shop.svc.cluster.local"), id="subdomain"),
        pytest.param({"name": "a" * 63 + "-x"}, {}, ("a" * 63, ""), id="cut to 63"),
        pytest.param({"name": "a" * 62 + "-" + "b"}, {}, ("a" * 62, ""), id="no hyphen at the end"),
        pytest.param({}, {"hostnameOverride": "any.name"}, ("any.name", ""), id="override"),
        pytest.param({}, {"hostnameOverride": "o", "hostname": "h", "subdomain": "s"}, ("o", ""), id="override wins"),
    ],
)
def test_names(meta: dict[str, Any], spec: dict[str, Any], expected: tuple[str, str]) -> None:
    assert hostname_and_domain(pod(meta=meta, **spec), "cluster.local") == expected


@pytest.mark.parametrize(
    "spec", [{"hostname": "Up"}, {"subdomain": "a.b"}, {"hostnameOverride": ""}, {"hostname": "-a"}]
)
def test_bad_names(spec: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="is not a DNS"):
        hostname_and_domain(pod(**spec), "cluster.local")


def test_fqdn_as_hostname() -> None:
    spec: dict[str, Any] = {"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": True}
    assert kernel_hostname(pod(**spec), "cluster.local") == "h.s.shop.svc.cluster.local"
    assert kernel_hostname(pod(**{**spec, "setHostnameAsFQDN": False}), "cluster.local") == "h"
    with pytest.raises(Invalid, match="too long"):
        kernel_hostname(pod(**{**spec, "hostname": "h" * 60}), "cluster.local")
