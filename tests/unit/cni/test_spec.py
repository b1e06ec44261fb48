"""What comes from outside: arguments and configuration, sound and hostile."""

from __future__ import annotations

import json
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from cni.model import AttachmentKey, PortMapping, Route
from cni.spec.arguments import Args, parse_args
from cni.spec.configuration import NetConf, parse_conf
from cni.spec.errors import CNIError
from cni.spec.result import Result
from nodelib.json_values import Json

ENV = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0", "CNI_NETNS": "/run/netns/x"}
CONF = {"cniVersion": "1.1.0", "name": "net", "type": "nodewright", "ipam": {"ranges": [[{"subnet": "10.1.0.0/24"}]]}}


def conf(command: str = "ADD", **changes: Any) -> NetConf:
    return parse_conf(json.dumps(CONF | changes).encode(), command)


def test_args_of_a_kubernetes_runtime() -> None:
    args = parse_args(ENV | {"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"})
    assert args.key == AttachmentKey("c1", "eth0")
    assert args.pod == "a/b"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        pytest.param({"CNI_COMMAND": "add"}, "CNI_COMMAND", id="command in lower case"),
        pytest.param({"CNI_COMMAND": ""}, "CNI_COMMAND", id="no command"),
        pytest.param({"CNI_CONTAINERID": ""}, "CNI_CONTAINERID", id="no container"),
        pytest.param({"CNI_CONTAINERID": "-x"}, "CNI_CONTAINERID", id="container like an option"),
        pytest.param({"CNI_CONTAINERID": "a/b"}, "CNI_CONTAINERID", id="container like a path"),
        pytest.param({"CNI_CONTAINERID": "a\n"}, "CNI_CONTAINERID", id="container with a line break"),
        pytest.param({"CNI_CONTAINERID": "x" * 201}, "CNI_CONTAINERID", id="container too long"),
        pytest.param({"CNI_IFNAME": ""}, "CNI_IFNAME", id="no interface"),
        pytest.param({"CNI_IFNAME": "a:b"}, "CNI_IFNAME", id="interface with a colon"),
        pytest.param({"CNI_IFNAME": "a\tb"}, "CNI_IFNAME", id="interface with a tab"),
        pytest.param({"CNI_IFNAME": "a\x00b"}, "CNI_IFNAME", id="interface with a zero byte"),
        pytest.param({"CNI_IFNAME": "é" * 8}, "CNI_IFNAME", id="interface of 16 bytes"),
        pytest.param({"CNI_NETNS": ""}, "CNI_NETNS", id="no namespace"),
        pytest.param({"CNI_ARGS": "=x"}, "CNI_ARGS", id="argument without a name"),
    ],
)
def test_bad_environment(changes: dict[str, str], named: str) -> None:
    with pytest.raises(CNIError) as caught:
        parse_args(ENV | changes)
    assert caught.value.code == 4
    assert named in str(caught.value)


def test_del_needs_no_namespace() -> None:
    assert parse_args(ENV | {"CNI_COMMAND": "DEL", "CNI_NETNS": ""}).netns == ""


def test_conf_of_every_key() -> None:
    parsed = conf(
        bridge="br1",
        mtu=1400,
        hairpinMode=False,
        ipMasq=False,
        nonMasqueradeCIDRs=["10.0.0.0/8"],
        firewall="nftables",
        dataDir="/tmp/x",
        ipam={
            "ranges": [[{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.10", "gateway": "10.1.0.254"}]],
            "routes": [{"dst": "10.9.0.0/16"}, {"dst": "0.0.0.0/0", "gw": "10.1.0.9"}],
        },
        runtimeConfig={
            "portMappings": [
                {"hostPort": 80, "containerPort": 8080, "protocol": "TCP", "hostIP": "0.0.0.0"},
                {"hostPort": 0, "containerPort": 9},
                {"HostPort": 81, "ContainerPort": 8081, "Protocol": "tcp", "HostIP": "127.0.0.1"},  # as containerd
                {"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": "10.0.0.1"},
            ]
        },
    )
    assert (parsed.bridge, parsed.mtu, parsed.hairpin, parsed.masquerade) == ("br1", 1400, False, False)
    assert parsed.non_masquerade == (ip_network("10.0.0.0/8"),)
    ((only,),) = parsed.ranges
    assert (str(only.first), str(only.last), str(only.gateway)) == ("10.1.0.10", "10.1.0.254", "10.1.0.254")
    assert parsed.routes == (
        Route(ip_network("10.9.0.0/16")),
        Route(ip_network("0.0.0.0/0"), ip_address("10.1.0.9")),
    )
    assert parsed.port_mappings == (
        PortMapping(80, 8080),
        PortMapping(81, 8081, "tcp", "127.0.0.1"),
        PortMapping(53, 53, "udp", "10.0.0.1"),
    )


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        pytest.param({"cniVersion": "9.9.9"}, 1, "cniVersion", id="unknown version"),
        pytest.param({"cniVersion": None}, 1, "cniVersion", id="version null"),
        pytest.param({"name": "a b"}, 7, "name", id="name with a blank"),
        pytest.param({"name": None}, 7, "name", id="name null"),
        pytest.param({"bridge": ""}, 7, "bridge", id="bridge empty"),
        pytest.param({"bridge": 5}, 7, "bridge", id="bridge a number"),
        pytest.param({"mtu": -1}, 7, "mtu", id="negative MTU"),
        pytest.param({"mtu": True}, 7, "mtu", id="MTU a boolean"),
        pytest.param({"ipMasq": "yes"}, 7, "ipMasq", id="boolean as text"),
        pytest.param({"firewall": "pf"}, 7, "firewall", id="unknown firewall"),
        pytest.param({"dataDir": "relative"}, 7, "dataDir", id="relative folder"),
        pytest.param({"ipam": []}, 7, None, id="ipam an empty list"),
        pytest.param({"ipam": [1]}, 7, "ipam", id="ipam a list"),
        pytest.param({"ipam": {"ranges": [{"subnet": "10.0.0.0/24"}]}}, 7, "ranges", id="ranges of one level"),
        pytest.param({"ipam": {"subnet": "10.0.0.0/31"}}, 7, "/30", id="subnet too small"),
        pytest.param({"ipam": {"subnet": "10.0.0.0/24", "gateway": "10.1.0.1"}}, 7, "gateway", id="gateway outside"),
        pytest.param(
            {"ipam": {"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.8"}},
            7,
            "rangeStart",
            id="range backwards",
        ),
        pytest.param(
            {"ipam": {"ranges": [[{"subnet": "10.0.0.0/16"}], [{"subnet": "10.0.1.0/24"}]]}},
            7,
            "overlap",
            id="ranges overlap",
        ),
        pytest.param(
            {"ipam": {"ranges": [[{"subnet": "10.0.0.0/16"}, {"subnet": "fd00::/64"}]]}}, 7, "family", id="mixed set"
        ),
        pytest.param({"ipam": {"type": "dhcp"}}, 2, "ipam.type", id="foreign ipam"),
        pytest.param({"prevResult": "x"}, 7, "prevResult", id="prevResult text"),
    ],
)
def test_bad_conf(changes: Json, code: int, named: str | None) -> None:
    if named is None:
        assert conf(**changes).ranges == ()
        return
    with pytest.raises(CNIError) as caught:
        conf(**changes)
    assert caught.value.code == code
    assert named in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000], ids=range(6))
def test_what_is_no_json_object(text: bytes) -> None:
    with pytest.raises(CNIError) as caught:
        parse_conf(text, "ADD")
    assert caught.value.code == 6


@pytest.mark.parametrize(("command", "version"), [("CHECK", "0.3.1"), ("GC", "1.0.0"), ("STATUS", "0.4.0")])
def test_a_version_too_old_for_the_command(command: str, version: str) -> None:
    with pytest.raises(CNIError) as caught:
        conf(command, cniVersion=version)
    assert caught.value.code == 1


def test_gc_without_the_list_is_not_gc_of_everything() -> None:
    with pytest.raises(CNIError):
        conf("GC")
    key = "cni.dev/valid-attachments"
    assert conf("GC", **{key: []}).valid_attachments == frozenset()
    given = conf("GC", **{key: [{"containerID": "a", "ifname": "b"}]}).valid_attachments
    assert given == frozenset({AttachmentKey("a", "b")})


def test_error_and_result_as_json() -> None:
    body = CNIError(7, "broken", obj="x", details="mend it").as_json("1.0.0")
    assert body == {"cniVersion": "1.0.0", "code": 7, "msg": "nodewright: x: broken", "details": "mend it"}
    result = Result((), ({"address": "10.0.0.2/24"},), ())
    assert result.as_json("0.4.0")["ips"] == [{"address": "10.0.0.2/24", "version": "4"}]
    assert result.as_json("1.0.0")["ips"] == [{"address": "10.0.0.2/24"}]


def test_pod_without_kubernetes() -> None:
    assert Args("ADD").pod == ""
