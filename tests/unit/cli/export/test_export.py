"""`export logs`: what is left out, and how a part that fails or takes too long is shown."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from cli.export import parts, sources
from cli.export.folder import claim, contents, save, write
from cli.export.parts import Part
from cli.export.redact import Redactor
from cli.export.sources import MOST, end_of, listed, printed
from controlplane.cluster.model import Cluster
from nodelib.errors import Invalid, Temporary
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from tests.builders.wrong_types import mutants
from tests.fakes.apiserver import FakeApiServer

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
        _KEY.partition("\n")[2],
        "password: s3cr3t-value with blanks and s3cr3t-value",
        "DB_PASSWORD=s3cr3t-value with blanks s3cr3t-value",
        'password = "s3cr3t-value \\" s3cr3t-value"',
        '{"log": "{\\"password\\": \\"s3cr3t-value, s3cr3t-value\\"}"}',
        "password: 'it''s s3cr3t-value'",
        'password: "unended s3cr3t-value',
        "aws_secret_access_key = s3cr3t-value",
        "client_secret_value=s3cr3t-value;s3cr3t-value",
        "mysqldump --password s3cr3t-value --all",
        "curl -H 'Authorization: Basic czNjcjN0LXZhbHVl' example.test; s3cr3t=1, token=s3cr3t-value",
        '{"auths": {"r.test": {"auth": "s3cr3t-value"}}}',
        'auth = "s3cr3t-value"',
        "redis://:s3cr3t-value@db/0",
        "postgres://me:pa@s/s3cr3t-value@db/0",
        "password=s3cr3t-value token=s3cr3t-value",
        "ghp_s3cr3t-values3cr3t-value",
    ],
)
def test_the_shapes_of_secrets_are_left_out(text: str) -> None:
    clean = Redactor().text(text)
    assert "(left out)" in clean
    for secret in ("MIIEow", "eyJ", "0123456789abcdef", "s3cr3t-value", "czNjcjN0LXZhbHVl", _encoded(_KEY)):
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
        '{"tokenExpirationSeconds":3607,"path":"token"}',
        "secretName: web-tls",
        "it got 3 tokens: 17 left",
        "the password is wrong",
        "authentication-token-webhook-cache-ttl: 2m0s",
        "docker://registry:5000/image@sha256:1234",
        "passwordFile: /run/x",
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


def test_what_is_in_the_login_of_a_registry() -> None:
    login = {"auths": {"r.test": {"username": "me", "password": "open sesame", "auth": _encoded("me:other-word")}}}
    secret = {"kind": "Secret", "data": {".dockerconfigjson": _encoded(json.dumps(login))}}
    text = Redactor([secret], ["of-a-file"]).text("said open sesame, other-word, open%20sesame, of-a-file")
    assert text == "said (left out), (left out), (left out), (left out)"


def test_secrets_in_fields_of_other_names() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "web", "annotations": {"db-password": "short", "note": "x"}},
        "spec": {
            "containers": [
                {
                    "args": ["--password", "short", "--token-file", "/t", "--api-key=short"],
                    "env": [{"name": "PGPASS", "value": "short"}, {"name": "DSN", "value": "short"}],
                    "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": "short"}]}},
                }
            ],
            "volumes": [{"secret": {"secretName": "web-tls"}}],
        },
    }
    clean = json.dumps(Redactor().object(pod))
    assert "short" not in clean and "web-tls" in clean and "/t" in clean


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap", "Pod", 5])
def test_objects_of_wrong_types(kind: Any) -> None:
    found = {
        "kind": kind,
        "metadata": {"name": "a", "annotations": {"a": "b"}},
        "data": {"a": "b"},
        "spec": {"env": [{"name": "a", "value": "b"}]},
    }
    for mutant in mutants(found):
        Redactor().object(mutant)
    Redactor([mutant for mutant in mutants(found) if isinstance(mutant, dict)])


def test_many_secrets_and_long_texts_take_no_time() -> None:
    secrets = [{"data": {"x": _encoded(f"value-{number}-{number * 7919}")}} for number in range(5000)]
    redactor, began = Redactor(secrets), time.process_time()
    redactor.text("value-4-2 and more\n" * 50_000)
    assert time.process_time() - began < 5
    assert redactor.text("value-10-79190.") == "(left out)."


def test_values_that_begin_alike_or_are_cut() -> None:
    long = "a" * 64
    redactor = Redactor([], [f"{long}{number} end" for number in range(100)])
    assert redactor.text(f"x {long}7 end y") == "x (left out)" or redactor.text(f"x {long}7 end y") == "x (left out) y"
    assert redactor.text(f"x {long} cut\nnext") == "x (left out)\nnext"
    assert Redactor([], ["abcdef", "abcdefgh"]).text("abcdefgh abcdef") == "(left out) (left out)"


_PIECES = [
    *("eyJ-", "LS0tLS1CRUdJTi/", "password", "a://b:", "://a:b", "abc123.", "password=x ", "password: ", "--token "),
    *(
        "tokenfile=",
        '"tokenfile":x,',
        "tokenfile: x ",
        "token: 1 ",
        "tokenfile='''",
    ),  # names in values that are no secrets
    *('token\\"', "QQ==\n", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----\n"),
]


@pytest.mark.parametrize("piece", _PIECES)
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

    three = [Part("a/good.txt", good), Part("bad.txt", bad), Part("slow.txt", hanging)]
    said: list[str] = []
    written = await write(tmp_path, three, seconds=2, say=said.append)
    assert (tmp_path / "a/good.txt").read_text() == "all\\x1bwell\n"
    assert (tmp_path / "bad.txt.failed").read_text() == "API server: does not answer. Start it.\n"
    assert "not finished" in (tmp_path / "slow.txt.failed").read_text()
    assert (tmp_path / "bad.txt.failed").stat().st_mode & 0o077 == 0
    assert [bool(one.problem) for one in written] == [False, True, True]
    assert "bad.txt.failed: API server: does not answer" in contents(written)
    assert said == ["3 of 3 files"]


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


def test_a_link_or_another_s_folder_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(Invalid, match="not a directory"):
        claim(tmp_path / "link")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    claim(tmp_path / "open")
    assert (tmp_path / "open").stat().st_mode & 0o077 == 0
    if os.geteuid() == 0:
        os.chown(tmp_path / "open", 1234, 1234)
        with pytest.raises(Invalid, match="another user"):
            claim(tmp_path / "open")


async def test_no_link_in_the_folder_leads_out(tmp_path: Path) -> None:
    async def text() -> str:
        return "new"

    folder, outside = tmp_path / "report", tmp_path / "outside"
    claim(folder)
    outside.mkdir()
    (tmp_path / "kept").write_text("old")
    (folder / "node1").symlink_to(outside)
    (folder / "CONTENTS.txt").symlink_to(tmp_path / "kept")
    with pytest.raises(OSError):
        await write(folder, [Part("node1/log/a.log", text)])
    with pytest.raises(OSError):
        save(folder, "CONTENTS.txt", "new")
    assert os.listdir(outside) == [] and (tmp_path / "kept").read_text() == "old"


async def test_any_failure_of_a_part_is_its_own(tmp_path: Path) -> None:
    async def broken() -> str:
        raise TypeError("a defect\nof a part\x1b[2J")

    (done,) = await write(tmp_path, [Part("a.txt", broken)])
    assert "TypeError" in done.problem
    shown = contents([done], "look twice")
    assert "\x1b" not in shown and "look twice\n" in shown and len(shown.splitlines()) == 5


async def test_nothing_is_asked_of_the_address_of_a_cluster_that_is_stopped(tmp_path: Path) -> None:
    """Whoever answers there, by the route of this machine, is somebody else."""
    made = Cluster("lab", "10.89.0.0/24", root=str(tmp_path))
    objects = [part for part in parts.every(made, None, Redactor()) if part.path.startswith("objects/")]
    written = await write(tmp_path, objects)
    assert len(written) > 20
    assert {one.problem for one in written} == {
        "lab: the cluster is stopped. `./nodewright start --name lab` brings it back."
    }


def test_names_of_logs_are_data(tmp_path: Path) -> None:
    made = Cluster("lab", "10.89.0.0/24", root=str(tmp_path))
    folder = Path(made.log_dir("node1"))
    folder.mkdir(parents=True)
    for name in ("agent.log", "agent.log.1", "x\x1b[2J.log", "x" * 240 + ".log", "a\nb.log"):
        (folder / name).touch()
    os.mkfifo(folder / "pipe.log")
    found = {part.path: part for part in parts.every(made, None, Redactor()) if part.path.startswith("node1/log/")}
    assert sorted(found) == [f"node1/log/{name}" for name in ("agent.log", "agent.log.1", "left-out.txt", "pipe.log")]
    assert "3 files" in asyncio.run(found["node1/log/left-out.txt"].read())  # type: ignore[arg-type]
    with pytest.raises(Invalid):
        asyncio.run(found["node1/log/pipe.log"].read())  # type: ignore[arg-type]


def test_a_log_is_not_cut_within_a_secret(tmp_path: Path) -> None:
    secret = "first-half-second-half"
    (tmp_path / "log").write_text(f"{secret}\n" + "x" * (MOST - 12) + "\n")
    assert "second-half" not in end_of(str(tmp_path / "log"))


async def test_secrets_are_listed_to_their_end() -> None:
    async with FakeApiServer() as api:
        for number in range(250):
            data = {"metadata": {"name": f"s{number}"}, "data": {"x": _encoded(f"value-of-{number}-")}}
            await api.put(f"/api/v1/secrets/s{number}", data)
        client = KubeClient(ClusterAccess(api.url), user_agent="test")
        try:
            found, whole = await listed(client, "/api/v1/secrets", 1000)
            some, all_of_them = await listed(client, "/api/v1/secrets", 100)
        finally:
            await client.close()
    assert whole and len(found) == 250 and not all_of_them and len(some) == 100
    assert Redactor(found).text("value-of-249-") == "(left out)"


async def test_modules_in_the_current_directory_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip installed is not started by the launcher, which sees to that."""
    (tmp_path / "cli").mkdir()
    for name in ("__init__.py", "__main__.py"):
        (tmp_path / "cli" / name).write_text("raise SystemExit('a stranger was here')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert (await sources.ours("--version")).startswith("nodewright ")
