"""Mirrors and logins of registries: containerd's files, and where passwords are."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan import daemon_configs, registries
from controlplane.cluster.work import logins
from controlplane.config.model import Custom, Mirror, Registry
from nodelib.errors import Invalid

ODD = 'qu"ote\\ \x7e ä 🦆'
CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def cluster(root: Path, *found: Registry) -> Cluster:
    return Cluster("lab", "10.89.3.0/24", Options(nodes=1, custom=Custom(registries=found)), root=str(root))


def test_hosts_toml_names_the_mirrors_in_their_order() -> None:
    mirrors = (Mirror("https://m:5000", "/ca.crt"), Mirror("http://10.0.0.1", skip_verify=True))
    found = tomllib.loads(registries.hosts(Registry("docker.io", mirrors)))
    assert found == {
        "host": {
            "https://m:5000": {
                "capabilities": ["pull", "resolve"],
                "ca": "/etc/containerd/certs.d/docker.io/mirror-0.crt",
            },
            "http://10.0.0.1": {"capabilities": ["pull", "resolve"], "skip_verify": True},
        }
    }
    assert list(found["host"]) == ["https://m:5000", "http://10.0.0.1"]


def test_logins_are_in_containerd_s_configuration() -> None:
    given = {"docker.io": ("me", ODD), "r.example:5000": ("you", "x")}
    text = daemon_configs.containerd_config(restrict_oom_score_adj=False, durable=False, logins=given)
    found = tomllib.loads(text)["plugins"]["io.containerd.cri.v1.images"]["registry"]
    assert found["config_path"] == "/etc/containerd/certs.d"
    auth = {host: (one["auth"]["username"], one["auth"]["password"]) for host, one in found["configs"].items()}
    assert auth == {"registry-1.docker.io": ("me", ODD), "r.example:5000": ("you", "x")}


def test_a_password_is_read_once_and_kept_for_root_alone(tmp_path: Path) -> None:
    one = cluster(tmp_path, Registry("docker.io", username="me", password_env="SECRET"))
    with pytest.raises(Invalid) as caught:
        logins.read(one, {})
    assert "SECRET" in caught.value.message and "export SECRET=" in caught.value.action
    logins.save(one, logins.read(one, {"SECRET": ODD}))
    assert logins.read(one, {}) == {"docker.io": ("me", ODD)}, "a later `up` does not need the variable"
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert ODD not in str(one.to_json())
    logins.save(one, {})
    assert not file.exists()


@pytest.mark.parametrize("text", ["", "\n", "two\nlines", "x" * 9000], ids=["empty", "blank", "lines", "long"])
def test_what_is_no_password_is_refused_and_not_shown(text: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(text)
    with pytest.raises(Invalid) as caught:
        logins.read(cluster(tmp_path, Registry("h", username="u", password_file=str(tmp_path / "secret"))), {})
    assert "two" not in str(caught.value) and "xxx" not in str(caught.value)


def test_a_password_of_a_file_ends_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    found = logins.read(cluster(tmp_path, Registry("h", username="u", password_file=str(tmp_path / "secret"))), {})
    assert found == {"h": ("u", "s3cret")}


def test_files_of_registries_come_and_go_and_those_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(CA)
    one = cluster(tmp_path, Registry("docker.io", (Mirror("https://m", str(tmp_path / "ca.crt")),)))
    folder = tmp_path / "lab/node1" / registries.FOLDER
    (folder / "mine").mkdir(parents=True)
    (folder / "mine/hosts.toml").write_text("server = 'x'\n")
    (tmp_path / "elsewhere").mkdir()
    (folder / "docker.io").symlink_to(tmp_path / "elsewhere")  # as a pod may leave it
    logins.write_hosts(one, one.nodes[0])
    assert (folder / "docker.io/mirror-0.crt").read_text() == CA
    assert not list((tmp_path / "elsewhere").iterdir())
    logins.write_hosts(cluster(tmp_path), one.nodes[0])
    assert [path.name for path in folder.iterdir()] == ["mine"]


def test_an_authority_that_is_not_there_says_so(tmp_path: Path) -> None:
    path = tmp_path / "mirror.crt"
    one = cluster(tmp_path, Registry("docker.io", (Mirror("https://m:5000", str(path)),)))
    with pytest.raises(Invalid, match="cannot be read: No such file") as caught:
        logins.check_authorities(one)
    assert "`caFile`" in caught.value.action
    path.write_text("no certificate")
    with pytest.raises(Invalid, match="not a PEM file"):
        logins.check_authorities(one)
    path.write_text(CA)
    logins.check_authorities(one)
