"""The recipes against what upstream's suites ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.binaries.model import TABLE
from controlplane.images.edge.compile import source_lines
from controlplane.images.plan.document import images_page
from controlplane.images.plan.known import BY_NAME, CONFORMANCE, DEMO, NODE_SUITE, RECIPES
from controlplane.images.work import binaries_for
from nodelib.errors import NotFound

# test/utils/image/manifest.go of Kubernetes 1.37.1, the images that the conformance suites run.
UPSTREAM = [
    "e2e-test-images/agnhost:2.55",
    "e2e-test-images/agnhost:2.66.1",
    "e2e-test-images/busybox:1.37.0-2",
    "pause:3.10.2",
    "e2e-test-images/sample-apiserver:1.29.2",
    "etcd:3.7.0-0",
    "e2e-test-images/glibc-dns-testing:2.1.1",
    "e2e-test-images/kitten:1.8",
    "e2e-test-images/nautilus:1.8",
    "e2e-test-images/nginx:1.27.0-2",
    "e2e-test-images/nginx:1.28.0-2",
    "e2e-test-images/nonewprivs:1.4",
    "e2e-test-images/nonroot:1.5",
    "e2e-test-images/regression-issue-74839:1.5",
]
# test/e2e/testing-manifests/storage-csi/mock; test/e2e/dra/utils/deploy.go asks for the newest hostpathplugin of these.
CSI = {
    "e2e-test-images/busybox:1.36.1-1",
    "sig-storage/csi-attacher:v4.12.0",
    "sig-storage/csi-node-driver-registrar:v2.17.0",
    "sig-storage/csi-provisioner:v6.3.0",
    "sig-storage/csi-resizer:v2.2.0",
    "sig-storage/csi-snapshotter:v8.6.0",
    "sig-storage/hostpathplugin:v1.17.1",
}
OLD_BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.36.1-1"


def test_every_image_of_the_suites_has_a_recipe() -> None:
    assert {f"registry.k8s.io/{name}" for name in UPSTREAM} <= set(CONFORMANCE)


def test_only_e2e_test_gets_the_images_of_csi_and_dra() -> None:
    """The node suite's DRA driver is in the suite. The old busybox it has, too: see below."""
    names = {f"registry.k8s.io/{name}" for name in CSI}
    assert names <= set(CONFORMANCE) and not (names - {OLD_BUSYBOX}) & {*NODE_SUITE, *DEMO}


def test_the_node_suite_has_the_busybox_that_the_specs_of_memory_qos_name() -> None:
    """test/e2e_node/memory_qos_test.go names it itself, past manifest.go: every pod there waited for a pull."""
    assert OLD_BUSYBOX in NODE_SUITE


def test_an_exec_finds_a_shell_beside_the_proxy() -> None:
    """DRA's driver makes and removes files in that container."""
    layers = BY_NAME["registry.k8s.io/sig-storage/hostpathplugin:v1.17.1"].layers
    assert layers[:-1] == BY_NAME["registry.k8s.io/e2e-test-images/busybox:1.36.1-1"].layers


def test_no_two_recipes_claim_one_name() -> None:
    assert len(BY_NAME) == sum(1 + len(recipe.aliases) for recipe in RECIPES)


def test_every_binary_of_a_recipe_can_be_built() -> None:
    assert set(binaries_for(CONFORMANCE)) <= set(TABLE)


def test_the_demo_asks_for_no_more_than_it_needs() -> None:
    assert set(binaries_for(DEMO)) == {"agnhost", "coredns"}


def test_two_tags_of_agnhost_are_two_images_to_the_cri() -> None:
    new, old = (BY_NAME[f"registry.k8s.io/e2e-test-images/agnhost:{tag}"] for tag in ("2.66.1", "2.55"))
    assert new.layers == old.layers
    assert new.run != old.run


def test_every_image_says_where_it_differs() -> None:
    assert all(recipe.differs for recipe in RECIPES)
    page = images_page()
    assert all(name in page for name in BY_NAME)


def test_an_unknown_image_is_named_with_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"example\.org/x:1.*Known: registry\.k8s\.io"):
        binaries_for(["example.org/x:1"])


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        (
            "Types: deb\nURIs: http://mirror/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"
            "Signed-By: /usr/share/keyrings/k.gpg\n\nTypes: deb\nURIs: https://other/apt\nSuites: nodistro\n",
            "deb-src [signed-by=/usr/share/keyrings/k.gpg] http://mirror/debian bookworm main\n"
            "deb-src [signed-by=/usr/share/keyrings/k.gpg] http://mirror/debian bookworm-updates main\n",
        ),
        (
            "# comment\ndeb [arch=amd64] http://mirror/debian bookworm main contrib\ndeb http://x/apt stable main\n",
            "deb-src [arch=amd64] http://mirror/debian bookworm main contrib\n",
        ),
        ("deb https://vendor/apt cloud-sdk-bookworm main\n", "\n"),
    ],
    ids=["deb822", "one-line", "third-party"],
)
def test_source_lines(configured: str, expected: str) -> None:
    assert source_lines(configured, "bookworm") == expected


def test_the_page_in_docs_is_the_generated_one() -> None:
    page = Path(__file__).resolve().parents[4] / "docs/images.md"
    assert page.read_text() == images_page(), "python -m controlplane.images.plan.document > docs/images.md"
