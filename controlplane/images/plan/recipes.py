"""Every image of the reference cluster and of upstream's suites.

Names and tags are those of test/utils/image/manifest.go of Kubernetes 1.37.1; contents follow the Dockerfiles
beside it, over a userland of Debian (or Ubuntu) packages instead of Alpine's.
"""

from __future__ import annotations

from dataclasses import replace

from controlplane.images.model.oci import RunConfig, directory, file
from controlplane.images.model.recipe import (
    Built,
    CProgram,
    Files,
    LayerRecipe,
    Recipe,
    Upstream,
)
from controlplane.images.plan.image_names import AGNHOST_NAME, BUSYBOX_NAME, COREDNS_NAME, E2E, ETCD_NAME, PAUSE_NAME
from controlplane.images.plan.layers import (
    AGNHOST_LAYER,
    BUSYBOX_LAYER,
    DEBIAN_LAYER,
    IPTABLES_LAYER,
    NGINX_LAYER,
    SKELETON,
)

_PAUSE_C = r"""
#include <signal.h>
#include <string.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* The process that holds a pod's namespaces: it sleeps, reaps what is reparented to it, and ends when told to. */
static void stop(int signal) { (void)signal; _exit(0); }
static void reap(int signal) { (void)signal; while (waitpid(-1, NULL, WNOHANG) > 0) {} }

static int on(int signal, void (*handler)(int), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    return sigaction(signal, &action, NULL);
}

int main(int count, char **words) {
    if (count > 1 && strcmp(words[1], "-v") == 0) { puts("pause 3.10.2 (nodewright)"); return 0; }
    if (on(SIGINT, stop, 0) || on(SIGTERM, stop, 0) || on(SIGCHLD, reap, SA_NOCLDSTOP)) return 1;
    for (;;) pause();
}
"""

_AGNHOST_RUN = RunConfig(
    entrypoint=("/agnhost",), cmd=("pause",), ports=("80/tcp", "8080/tcp", "8081/tcp", "9376/tcp", "5000/tcp")
)
_DEBIAN_DIFFERS = "a Debian (or Ubuntu) userland from packages, glibc, instead of Alpine's"


def _pet(name: str) -> LayerRecipe:
    html = f"test/images/{name}/html"
    return LayerRecipe(
        name,
        (Upstream(f"{html}/{name}.jpg", f"{name}.jpg"), Upstream(f"{html}/data.json", "data.json")),
    )


def _with(run: RunConfig, **changes: tuple[str, ...]) -> RunConfig:
    return RunConfig(
        entrypoint=changes.get("entrypoint", run.entrypoint), cmd=changes.get("cmd", run.cmd), ports=run.ports
    )


_KITTEN_OS_RELEASE = """# A nodewright test fixture. Upstream's image is built on Alpine, and its image volume
# tests look for the words below in this file; the userland here is Debian's.
ID=nodewright-fixture
NAME="nodewright fixture standing in for Alpine Linux"
"""


def _nginx(tag: str) -> Recipe:
    return Recipe(
        f"{E2E}/nginx:{tag}",
        (DEBIAN_LAYER, NGINX_LAYER),
        RunConfig(
            cmd=("nginx", "-g", "daemon off;"),
            ports=("80/tcp",),
            stop_signal="SIGQUIT",
            labels=(("nodewright.fixture", f"nginx:{tag}"),),
        ),
        differs=f"the distribution's nginx, not {tag.partition('-')[0]}; one plain HTTP server on port 80",
    )


def _agnhost(tag: str) -> Recipe:
    # To the CRI two tags of one config digest are one image, reported under either name; the label keeps them apart.
    return Recipe(
        f"{E2E}/agnhost:{tag}",
        (DEBIAN_LAYER, AGNHOST_LAYER),
        RunConfig(
            entrypoint=_AGNHOST_RUN.entrypoint,
            cmd=_AGNHOST_RUN.cmd,
            ports=_AGNHOST_RUN.ports,
            labels=(("nodewright.fixture", f"agnhost:{tag}"),),
        ),
        differs=_DEBIAN_DIFFERS
        + "; /coredns is the one of the cluster"
        + ("" if AGNHOST_NAME.endswith(tag) else "; agnhost itself is 2.66.1, not " + tag),
    )


# Every pod of the suite of sigs.k8s.io/network-policy-api has two servers for SCTP. Where the kernel has none they
# cannot start, and no pod would become ready: there they wait, and the cases that ask them are left out.
_PORTER = """#!/bin/bash
if [[ ${1:-} == porter && -n $(compgen -v SERVE_SCTP_PORT_) ]] && ! grep -qs '^SCTP' /proc/net/protocols; then
  /agnhost-upstream "$@" || exec sleep infinity
fi
exec /agnhost-upstream "$@"
"""
_PORTER_LAYER = LayerRecipe(
    "agnhost without SCTP", (Built("agnhost", "agnhost-upstream"), Files((file("agnhost", _PORTER, 0o755),)))
)


def _policy_agnhost(tag: str) -> Recipe:
    found = _agnhost(tag)
    differs = f"{found.differs}; where the kernel has no SCTP its servers for it wait instead of ending"
    return replace(found, layers=(*found.layers, _PORTER_LAYER), differs=differs)


def _cyclonus_worker() -> Recipe:
    worker = LayerRecipe("cyclonus-worker", (Built("cyclonus-worker", "worker"),))
    return Recipe(
        "docker.io/mfenwick100/cyclonus-worker:latest",
        (DEBIAN_LAYER, AGNHOST_LAYER, worker),
        RunConfig(entrypoint=("/worker",), ports=_AGNHOST_RUN.ports),
        differs=f"{_agnhost('2.43').differs}; the worker asks by TCP and UDP itself, without agnhost",
    )


POLICY_RECIPES = (_policy_agnhost("2.45"), _cyclonus_worker())

RECIPES: tuple[Recipe, ...] = (
    Recipe(
        PAUSE_NAME,
        (LayerRecipe("pause", (CProgram(_PAUSE_C, "pause"),)),),
        RunConfig(entrypoint=("/pause",), user="65535:65535"),
        differs="a program of our own with the same behaviour",
    ),
    Recipe(
        COREDNS_NAME,
        (
            LayerRecipe(
                "coredns",
                (Built("coredns", "coredns"), Files((directory("etc"), directory("tmp", 0o1777)))),
            ),
        ),
        RunConfig(entrypoint=("/coredns",), ports=("53/tcp", "53/udp")),
        aliases=("registry.k8s.io/coredns/coredns:v1.14.6",),
        differs="CoreDNS v1.15.0 under both tags (kubeadm asks for v1.14.6); runs as root, no file capabilities",
    ),
    _agnhost("2.66.1"),
    Recipe(
        BUSYBOX_NAME,
        (BUSYBOX_LAYER,),
        RunConfig(cmd=("sh",)),
        differs="the version of the distribution's source package, static glibc, upstream's default configuration"
        " without `tc` (which current kernel headers no longer let it build)",
    ),
    _agnhost("2.55"),
    _nginx("1.27.0-2"),
    _nginx("1.28.0-2"),
    Recipe(
        f"{E2E}/nonewprivs:1.4",
        (BUSYBOX_LAYER, LayerRecipe("nonewprivs", (Built("nnp", "usr/local/bin/nnp", 0o6755),))),
        RunConfig(cmd=("nnp",)),
        differs="busybox userland instead of Debian's",
    ),
    Recipe(
        f"{E2E}/nonroot:1.5",
        (BUSYBOX_LAYER,),
        RunConfig(cmd=("sh",), user="1234"),
        differs="busybox userland instead of Alpine's",
    ),
    Recipe(
        f"{E2E}/nautilus:1.8",
        (DEBIAN_LAYER, AGNHOST_LAYER, _pet("nautilus")),
        _with(_AGNHOST_RUN, cmd=("test-webserver",)),
        differs=_DEBIAN_DIFFERS,
    ),
    Recipe(
        f"{E2E}/kitten:1.8",
        (
            DEBIAN_LAYER,
            AGNHOST_LAYER,
            _pet("kitten"),
            LayerRecipe("os-release", (Files((file("etc/os-release", _KITTEN_OS_RELEASE),)),)),
        ),
        _with(_AGNHOST_RUN, cmd=("test-webserver",)),
        differs=_DEBIAN_DIFFERS + '; its /etc/os-release carries the words "Alpine Linux" that the image volume'
        " tests look for, though nothing in it is Alpine's",
    ),
    Recipe(
        f"{E2E}/glibc-dns-testing:2.1.1",
        (DEBIAN_LAYER, LayerRecipe("coredns", (Built("coredns", "coredns"),))),
        RunConfig(cmd=("/bin/sh",)),
        differs="/coredns is the one of the cluster",
    ),
    Recipe(
        f"{E2E}/sample-apiserver:1.29.2",
        (LayerRecipe("sample-apiserver", (Built("sample-apiserver", "sample-apiserver"), SKELETON)),),
        RunConfig(entrypoint=("/sample-apiserver",)),
        differs="k8s.io/sample-apiserver v0.37.1, the one of this Kubernetes version",
    ),
    Recipe(
        f"{E2E}/regression-issue-74839:1.5",
        (LayerRecipe("regression-issue-74839", (Built("regression-issue-74839", "regression-issue-74839"), SKELETON)),),
        RunConfig(entrypoint=("/regression-issue-74839",)),
        differs="no shell",
    ),
    Recipe(
        "registry.k8s.io/build-image/distroless-iptables:v0.9.7",
        (DEBIAN_LAYER, IPTABLES_LAYER),
        RunConfig(cmd=("/bin/sh",)),
        differs="a whole userland, iptables of the distribution in its nft form",
    ),
    Recipe(
        ETCD_NAME,
        (LayerRecipe("etcd", (Built("etcd-server", "usr/local/bin/etcd"), SKELETON)),),
        RunConfig(ports=("2379/tcp", "2380/tcp")),
        differs="etcd alone, without etcdctl and the older versions for migration",
    ),
)

# What the e2e_node suite needs beyond those.
NODE_RECIPES: tuple[Recipe, ...] = (
    Recipe(
        f"{E2E}/sample-device-plugin:1.8.0",
        (
            BUSYBOX_LAYER,
            LayerRecipe("sample-device-plugin", (Built("sample-device-plugin", "sampledeviceplugin"),)),
        ),
        RunConfig(entrypoint=("/sampledeviceplugin", "-alsologtostderr")),
        differs="busybox userland instead of Alpine's",
    ),
)
