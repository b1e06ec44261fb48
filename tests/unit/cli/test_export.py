"""`export logs`: what is left out, and how a part that fails or takes too long is shown."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from cli.export.folder import claim, contents, write
from cli.export.parts import Part
from cli.export.redact import Redactor
from cli.export.sources import MOST, end_of, printed
from nodelib.errors import Invalid, Temporary

_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA0Z3VS5JJcds3xfn\n-----END RSA PRIVATE KEY-----"
_JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLWJ5dGVz"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


_SECRET: dict[str, Any] = {
    "kind": "Secret",
    "metadata": {
        "name": "db",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": json.dumps(
                {"data": {"pw": _encoded("hunter2hunter2")}}
            ),
            "note": "hunter2hunter2",
        },
    },
    "data": {"pw": _encoded("hunter2hunter2"), "tls.key": _encoded(_KEY), "flag": _encoded("true")},
}


@pytest.mark.parametrize(
    "text",
    [
        f"key:\n{_KEY}\nend",
        json.dumps({"key": _KEY}),
        f"Authorization: Bearer {_JWT}",
        f"token {_JWT} was refused",
        f"client-key-data: {_encoded(_KEY)}",
        "kubeadm join --token abcdef.0123456789abcdef",
        "password: s3cr3t-value",
        'password = "s3cr3t-value"',
        "DB_PASSWORD=s3cr3t-value",
        "--api-key=s3cr3t-value",
        "https://user:s3cr3t-value@example.test/",
        f"{_KEY.splitlines()[0]}\ncut off in the middle of s3cr3t-value",
    ],
)
def test_the_shapes_of_secrets_are_left_out(text: str) -> None:
    clean = Redactor().text(text)
    assert "(left out)" in clean
    for secret in ("MIIEow", "eyJ", "0123456789abcdef", "s3cr3t-value", _encoded(_KEY)):
        assert secret not in clean


@pytest.mark.parametrize(
    "text",
    [
        "I1122 10:00:00 pod web started in 0.2 s",
        "automountServiceAccountToken: true",
        "10.96.0.10:53 -> 10.244.1.2:53",
        "--service-account-key-file=/etc/kubernetes/pki/sa.pub",
        "sha256:" + "a" * 64,
        "version 1.37.1",
    ],
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert Redactor([_SECRET]).text(text) == text


def test_values_of_secrets_are_left_out_wherever_they_turn_up() -> None:
    clean = Redactor([_SECRET]).text(f"a hunter2hunter2 b {_encoded('hunter2hunter2')} c true")
    assert clean == "a (left out) b (left out) c true"


def test_a_secret_keeps_its_name_and_keys_only() -> None:
    clean = Redactor([_SECRET]).object(_SECRET)
    text = json.dumps(clean)
    assert clean["metadata"]["name"] == "db" and set(clean["data"]) == {"pw", "tls.key", "flag"}
    assert set(clean["metadata"]["annotations"].values()) == {"(left out)"}
    assert "hunter2" not in text and _encoded("true") not in text and "managedFields" not in text


def test_variables_that_sound_like_passwords_and_what_was_applied_go() -> None:
    variables = [{"name": "DB_PASSWORD", "value": "short"}, {"name": "MODE", "value": "fast"}]
    pod = {
        "kind": "Pod",
        "metadata": {
            "name": "web",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "short", "a": "b"},
        },
        "spec": {"containers": [{"name": "web", "env": variables, "args": ["--token=abc123", "-v"]}]},
    }
    clean = Redactor().object(pod)
    assert clean["spec"]["containers"][0]["env"] == [{"name": "DB_PASSWORD", "value": "(left out)"}, variables[1]]
    assert clean["spec"]["containers"][0]["args"] == ["--token=(left out)", "-v"]
    assert clean["metadata"]["annotations"]["a"] == "b" and "short" not in json.dumps(clean)


def test_what_configmaps_of_users_hold_goes_and_the_systems_stays() -> None:
    for namespace, kept in (("shop", False), ("kube-system", True)):
        found = {"kind": "ConfigMap", "metadata": {"namespace": namespace}, "data": {"Corefile": ".:53 {}"}}
        assert (Redactor().object(found)["data"]["Corefile"] == ".:53 {}") is kept


@pytest.mark.parametrize(
    "piece", ["eyJ-", "LS0tLS1CRUdJTi/", "password", "a://b:", "-----BEGIN PRIVATE KEY-----", "abc123."]
)
def test_hostile_text_takes_no_time(piece: str) -> None:
    began = time.process_time()
    Redactor().text(piece * (500_000 // len(piece)))
    assert time.process_time() - began < 5


async def test_a_part_that_fails_or_hangs_is_a_file_that_says_why(tmp_path: Path) -> None:
    async def good() -> str:
        return "all\x1bwell"

    async def bad() -> str:
        raise Temporary("does not answer", obj="API server", action="Start it.")

    async def hanging() -> str:
        await asyncio.Event().wait()
        return ""

    parts = [Part("a/good.txt", good), Part("bad.txt", bad), Part("slow.txt", hanging)]
    written = await write(tmp_path, parts, seconds=2)
    assert (tmp_path / "a/good.txt").read_text() == "all\\x1bwell\n"
    assert (tmp_path / "bad.txt.failed").read_text() == "API server: does not answer. Start it.\n"
    assert "not finished" in (tmp_path / "slow.txt.failed").read_text()
    assert (tmp_path / "bad.txt.failed").stat().st_mode & 0o077 == 0
    assert [bool(one.problem) for one in written] == [False, True, True]
    assert "bad.txt.failed: API server: does not answer" in contents(written)


def test_only_a_new_or_empty_folder_is_written_to(tmp_path: Path) -> None:
    claim(tmp_path / "new")
    claim(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
    (tmp_path / "new" / "mine").touch()
    for folder, words in ((tmp_path / "new", "not empty"), (tmp_path / "no" / "such", "no such directory")):
        with pytest.raises(Invalid, match=words):
            claim(folder)
    with pytest.raises(Invalid, match="not a directory"):
        claim(tmp_path / "new" / "mine")


def test_the_end_of_a_long_log_is_kept_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("x" * MOST + "the end")
    text = end_of(str(tmp_path / "log"))
    assert text.endswith("the end") and len(text) < MOST + 100 and text.startswith("(the last")
    (tmp_path / "link").symlink_to(tmp_path / "log")
    for name in ("link", "missing"):
        with pytest.raises(Invalid):
            end_of(str(tmp_path / name))


async def test_endless_output_is_cut_and_a_failed_command_says_so() -> None:
    assert len(await printed(["yes"])) <= MOST
    with pytest.raises(Temporary, match="exit status 3: no such thing"):
        await printed(["sh", "-c", "echo no such thing; exit 3"])
