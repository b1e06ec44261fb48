"""What one run of Go builds, and with which arguments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from controlplane.binaries.model import BINARIES, TABLE
from controlplane.binaries.plan.go_runs import (
    GoRun,
    compile_arguments,
    file_name,
    go_arguments,
    go_runs,
    list_arguments,
    required_modules,
)
from controlplane.binaries.work import MODULES
from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan.components import needed
from controlplane.cluster.plan.manifests import corefile
from controlplane.images.plan.known import DEMO
from controlplane.images.work import binaries_for


def _run(name: str) -> GoRun:
    return GoRun((TABLE[name],))


def test_all_that_up_needs_is_built_by_one_run_of_go_and_what_has_c_in_it_by_another() -> None:
    run, with_c = go_runs(TABLE[name] for name in (*needed(Options()), *binaries_for(DEMO)))
    assert (run.c, with_c.c, with_c.label) == (False, True, "runc")
    assert {"nodewright-controlplane", "containerd", "kubectl", "coredns", "agnhost"} <= {
        binary.name for binary in run.binaries
    }
    assert run.packages[0] == "./nodewright-controlplane"


def test_runs_differ_by_module_and_kind_and_tests_come_last() -> None:
    runs = go_runs(
        TABLE[name] for name in ("e2e.test", "kubelet", "traefik", "e2e_node.test", "etcd", "kube-apiserver")
    )
    assert [run.label for run in runs] == ["kubelet, nodewright-controlplane", "traefik", "e2e.test, e2e_node.test"]


def test_no_two_binaries_of_a_run_have_the_same_file() -> None:
    for run in go_runs(BINARIES):
        assert len({file_name(binary) for binary in run.binaries}) == len(run.binaries)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("nodewright-controlplane", "nodewright-controlplane"),
        ("etcd-server", "server"),
        ("nnp", "nonewprivs"),
        ("e2e.test", "e2e.test"),
        ("ginkgo", "ginkgo"),
    ],
)
def test_the_file_is_named_as_go_names_it(name: str, file: str) -> None:
    assert file_name(TABLE[name]) == file


def test_tests_are_compiled_and_not_vetted() -> None:
    assert go_arguments(_run("e2e.test"), "/o")[:3] == ["test", "-c", "-vet=off"]
    assert "-test" in list_arguments(_run("e2e.test"))
    assert go_arguments(_run("kubectl"), "/o")[0] == "build"


def test_what_tests_are_made_of_is_compiled_by_a_command_that_names_it() -> None:
    api = {"Module": {"Path": "k8s.io/api"}}
    packages: list[dict[str, Any]] = [
        *({"ImportPath": "runtime"}, {"ImportPath": "vendor/golang.org/x"}),
        *(
            {"ImportPath": name, **api}
            for name in ("k8s.io/api/core/v1", "k8s.io/x [k8s.io/e2e.test]", "k8s.io/e2e.test")
        ),
        {"ImportPath": "example.test/only/of/others", "Module": {"Path": "example.test/only"}},
    ]
    required = {"k8s.io/api", "k8s.io/kubernetes"}
    found = compile_arguments(_run("e2e.test"), packages, required)
    assert found[:2] == ["build", "-v"]
    assert found[-2].startswith("-s -w")
    assert found[-1] == "k8s.io/api/core/v1"
    assert compile_arguments(_run("e2e.test"), [{"ImportPath": "runtime"}], required) == []
    assert compile_arguments(_run("kubectl"), packages, required) == []


def test_only_what_is_required_may_be_named() -> None:
    """gomega is needed by upstream's tests alone: Go refuses its packages by name, "updates to go.mod needed"."""
    required = required_modules((MODULES / "cluster/go.mod").read_text())
    assert {"k8s.io/kubernetes", "github.com/coredns/coredns", "github.com/containerd/containerd/v2"} <= required
    assert "github.com/onsi/gomega" not in required
    assert required_modules("require a.test/b v1.0.0\nreplace (\n\tc.test/d => c.test/d v2.0.0\n)\n") == {"a.test/b"}


def test_the_list_has_the_flags_of_the_build() -> None:
    """Go says of a package whether it must be compiled with these flags."""
    built, listed = go_arguments(_run("containerd"), "/o"), list_arguments(_run("containerd"))
    for flag in ("-trimpath", "-gcflags=all=-dwarf=false"):
        assert flag in built
        assert flag in listed
    assert built[built.index("-tags") + 1] == listed[listed.index("-tags") + 1] == "no_btrfs,no_zfs,no_devmapper"


def test_coredns_has_the_plugins_of_the_corefile_and_of_upstreams_tests() -> None:
    imported = set(re.findall(r'/plugin/(\w+)"', Path(MODULES, "cluster/coredns/main.go").read_text()))
    wanted = set(re.findall(r"^ {4}(\w+)", corefile(Cluster("lab", "10.89.3.0/24"), ["9.9.9.9"]), re.MULTILINE)) | {
        "hosts",
        "log",
    }
    assert {"kubernetes", "forward", "loop"} < wanted
    assert {"metrics" if name == "prometheus" else name for name in wanted} <= imported
