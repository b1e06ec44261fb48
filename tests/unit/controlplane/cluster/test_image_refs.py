"""Names of images, and what of containerd's references goes when an image is unloaded."""

from __future__ import annotations

import pytest

from controlplane.cluster.plan.image_refs import full_name, is_name, references, to_import, users

A, B = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
_TYPE = "application/vnd.oci.image.index.v1+json"


def listing(*rows: tuple[str, str]) -> list[str]:
    head = "REF TYPE DIGEST SIZE PLATFORMS LABELS"
    return [
        head,
        *(f"{name} {_TYPE} {digest} 4.1 MiB linux/amd64 io.cri-containerd.image=managed" for name, digest in rows),
    ]


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("web", "docker.io/library/web:latest"),
        ("web:v1", "docker.io/library/web:v1"),
        ("team/web", "docker.io/team/web:latest"),
        ("localhost/web:v1", "localhost/web:v1"),
        ("localhost:5000/web", "localhost:5000/web:latest"),
        ("example.test/web:v1", "example.test/web:v1"),
        (f"example.test/web@{A}", f"example.test/web@{A}"),
    ],
)
def test_short_names_are_those_of_docker(name: str, full: str) -> None:
    assert full_name(name) == full


@pytest.mark.parametrize(
    ("rows", "name", "gone"),
    [
        ([("docker.io/library/web:v1", A), (A, A)], "web:v1", ["docker.io/library/web:v1", A]),
        (
            [("x.test/web:v1", A), (f"x.test/web@{A}", A), (f"sha256:{'c' * 64}", A), ("x.test/db:v1", B)],
            "x.test/web:v1",
            ["x.test/web:v1", f"x.test/web@{A}", f"sha256:{'c' * 64}"],
        ),
        ([("x.test/web:v1", A), ("x.test/web:v2", A), (A, A)], "x.test/web:v1", ["x.test/web:v1"]),
        ([("x.test/web:v1", A)], "web:v1", []),
        ([], "web", []),
    ],
    ids=["by its short name", "digests go with it", "another tag needs them", "another registry's", "nothing there"],
)
def test_an_image_goes_with_what_has_no_tag(rows: list[tuple[str, str]], name: str, gone: list[str]) -> None:
    assert references(listing(*rows), name) == gone


def test_containers_made_from_it_are_found() -> None:
    lines = [
        "CONTAINER    IMAGE    RUNTIME",
        "c1  x.test/web:v1  io.containerd.runc.v2",
        "c2  x.test/db:v1  runc",
        "c3",
    ]
    assert users(lines, ["x.test/web:v1", A]) == ["c1"]


@pytest.mark.parametrize("text", ["-web", "--help", "a b", "", "web\x1b", "../web"])
def test_what_cannot_be_an_image_is_no_name(text: str) -> None:
    assert not is_name(text)


def test_what_is_imported_is_missing_or_another_content() -> None:
    lines = listing(("example.test/a:1", A), ("example.test/b:1", A))
    names = ("example.test/a:1", "example.test/b:1", "example.test/c:1")
    assert to_import(lines, dict.fromkeys(names, "")) == ["example.test/c:1"]
    assert to_import(lines, dict.fromkeys(names, B)) == list(names)
    assert to_import(lines, {names[0]: A, names[1]: B}) == [names[1]]
