"""The entries of a cluster in a user's kubeconfig: what comes in, what goes out, and that nothing else changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from controlplane.cluster.plan.user_kubeconfig import chosen_file, merge, without
from nodelib.errors import Invalid
from nodelib.kube.access import ClusterAccess, render_kubeconfig

OWN = render_kubeconfig(ClusterAccess("https://10.89.0.11:6443", ca_data=b"ca", cert_data=b"crt", key_data=b"key"))
OTHER = render_kubeconfig(ClusterAccess("https://10.89.1.11:6443", ca_data=b"ca2", cert_data=b"crt2", key_data=b"key2"))
NAME, SECOND = "nodewright-lab", "nodewright-prod"

FOREIGN = """# my clusters
kind: Config
apiVersion: v1
current-context: work
preferences: {colors: true}
users:
- name: work
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: aws
      args: [eks, get-token, "--cluster-name", 'on']
      env:
      - {name: SINCE, value: 2024-01-02}
      - {name: MASK, value: 0123}
      - {name: "NO", value: "no"}
contexts:
- context: &shared
    cluster: work
    user: work
    namespace: übung
  name: work
- context: *shared
  name: alias
clusters:
- name: work
  cluster: {server: "https://work.example:443", insecure-skip-tls-verify: true}
extensions:
- name: tool
  extension: {last: 12:30:45, long: "a b c"}
"""


class _Texts(yaml.SafeLoader):
    """Reads every scalar as it is written."""


_Texts.yaml_implicit_resolvers = {}


def read(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(text, _Texts)
    return found


def named(text: str, kind: str) -> dict[str, Any]:
    return {one["name"]: one[kind.removesuffix("s")] for one in read(text).get(kind) or []}


@pytest.mark.parametrize("before", ["", "\n", "# only a comment\n", "---\n", "null\n"])
def test_into_nothing(before: str) -> None:
    merged = merge(before, "f", NAME, OWN)
    assert merged.current == NAME
    made = read(merged.text)
    assert (made["apiVersion"], made["kind"], made["current-context"]) == ("v1", "Config", NAME)
    assert named(merged.text, "contexts") == {NAME: {"cluster": NAME, "user": NAME}}
    assert named(merged.text, "clusters")[NAME]["server"] == "https://10.89.0.11:6443"
    assert set(named(merged.text, "users")[NAME]) == {"client-certificate-data", "client-key-data"}


def test_what_is_not_ours_stays_as_it_is_written() -> None:
    merged = merge(FOREIGN, "f", NAME, OWN).text
    left = without(merged, "f", NAME)
    assert left is not None
    was, now = read(FOREIGN), read(left)
    assert now.pop("current-context") == ""
    assert was.pop("current-context") == "work"
    assert now == was
    assert list(now) == list(was), "the order of keys"
    for written in ("2024-01-02", "0123", "12:30:45", "'on'", '"no"', "übung"):
        assert written in merged


def test_two_clusters_in_one_file() -> None:
    both = merge(merge("", "f", NAME, OWN).text, "f", SECOND, OTHER).text
    assert {name: one["server"] for name, one in named(both, "clusters").items()} == {
        NAME: "https://10.89.0.11:6443",
        SECOND: "https://10.89.1.11:6443",
    }
    assert named(both, "users")[NAME] != named(both, "users")[SECOND]
    left = without(both, "f", SECOND)
    assert left is not None and list(named(left, "contexts")) == [NAME]


@pytest.mark.parametrize(
    ("current", "has_ours", "expect"),
    [
        pytest.param("work", False, NAME, id="a new cluster becomes the current context, as with kind"),
        pytest.param("work", True, "work", id="a second up leaves the user's choice"),
        pytest.param("", True, NAME, id="no choice"),
        pytest.param(NAME, True, NAME, id="ours already"),
    ],
)
def test_the_current_context(current: str, has_ours: bool, expect: str) -> None:
    before = merge(FOREIGN, "f", NAME, OWN).text if has_ours else FOREIGN
    before = before.replace(f"current-context: {NAME if has_ours else 'work'}", f'current-context: "{current}"')
    assert merge(before, "f", NAME, OTHER).current == expect


@pytest.mark.parametrize(("current", "expect"), [(NAME, ""), ("work", "work")])
def test_down_unsets_the_current_context_only_if_it_is_ours(current: str, expect: str) -> None:
    before = merge(FOREIGN, "f", NAME, OWN).text.replace(f"current-context: {NAME}", f"current-context: {current}")
    left = without(before, "f", NAME)
    assert left is not None and read(left)["current-context"] == expect


def test_a_second_up_brings_new_keys_and_keeps_the_namespace_of_the_context() -> None:
    before = merge("", "f", NAME, OWN).text.replace("- context:\n", "- context:\n    namespace: shop\n")
    merged = merge(before, "f", NAME, OTHER).text
    assert named(merged, "contexts")[NAME] == {"cluster": NAME, "user": NAME, "namespace": "shop"}
    assert named(merged, "clusters")[NAME]["server"] == "https://10.89.1.11:6443"
    assert len(read(merged)["users"]) == 1


def test_the_same_again_is_the_same_text() -> None:
    once = merge(FOREIGN, "f", NAME, OWN).text
    assert merge(once, "f", NAME, OWN).text == once


def test_json_stays_json() -> None:
    merged = merge(OTHER, "f", NAME, OWN).text
    assert json.loads(merged)["current-context"] == NAME


@pytest.mark.parametrize("text", ["", FOREIGN, "clusters: null\ncontexts: []\n"])
def test_nothing_to_remove(text: str) -> None:
    assert without(text, "f", NAME) is None


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "just words",
        "- a\n- b\n",
        "a: 1\n---\nb: 2\n",
        "clusters: 3\n",
        "contexts: [1, 2]\n",
        "users:\n  name: x\n",
        "a: \x00\n",
        "[" * 100_000,
    ],
    ids=lambda text: repr(text[:20]),
)
def test_a_file_that_is_no_kubeconfig_is_refused(text: str) -> None:
    for change in (merge, without):
        with pytest.raises(Invalid, match="left as it is"):
            change(text, "/home/me/.kube/config", NAME, *((OWN,) if change is merge else ()))


@pytest.mark.parametrize(
    ("option", "variable", "there", "expect"),
    [
        (None, "", (), "/home/me/.kube/config"),
        (None, "/a:/b", (), "/b"),
        (None, "/a:/b", ("/a", "/b"), "/a"),
        (None, ":/a::/b:", ("/b",), "/b"),
        ("/c", "/a:/b", ("/a",), "/c"),
        ("", "/a", ("/a",), ""),
    ],
)
def test_which_file(option: str | None, variable: str, there: tuple[str, ...], expect: str) -> None:
    assert chosen_file(option, variable, "/home/me", lambda path: path in there) == expect
