"""Commands that create, use and remove a cluster on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.errors import reported
from cli.options.application import PASS, command
from cli.options.choices import ImageSet, IPFamily, Maker, Network, ProxyMode, Release
from cli.options.shared import DEFAULT, Binaries, Name, Plain


@command("Cluster")
def up(
    context: typer.Context,
    name: Name = DEFAULT,
    nodes: Annotated[int, typer.Option(min=1, max=20, metavar="N", help="How many nodes.")] = 2,
    proxy_mode: Annotated[
        ProxyMode,
        typer.Option(metavar="MODE", help="How the proxy programs Services: iptables, nftables or userspace."),
    ] = ProxyMode.IPTABLES,
    demo: Annotated[
        bool, typer.Option(help="Deploy a web server on every node and check that each kind of address reaches it.")
    ] = True,
    agent: Annotated[
        Maker,
        typer.Option(metavar="MAKER", help="Whose kubelet runs: nodewright, or upstream to compare with it."),
    ] = Maker.NODEWRIGHT,
    proxy: Annotated[
        Maker, typer.Option(metavar="MAKER", help="Whose kube-proxy runs: nodewright or upstream.")
    ] = Maker.NODEWRIGHT,
    ip_family: Annotated[
        IPFamily,
        typer.Option(metavar="FAMILY", help="Addresses of nodes, pods and Services: ipv4, ipv6 or dual."),
    ] = IPFamily.IPV4,
    routed: Annotated[
        bool,
        typer.Option("--routed", help="Put each node on its own network behind a router; pods connect by VXLAN."),
    ] = False,
    addons: Annotated[
        str,
        typer.Option(
            "--addons",
            metavar="NAMES",
            help="Add-ons besides DNS, separated by commas: metrics (for kubectl top), ingress (Traefik, built first).",
        ),
    ] = "",
    uplink: Annotated[
        bool, typer.Option(help="Let pods reach the network of this machine; their source address is masqueraded.")
    ] = True,
    kubeadm: Annotated[
        bool,
        typer.Option("--kubeadm", help="Create it with kubeadm init and join; the control plane runs as static pods."),
    ] = False,
    cpus: Annotated[
        int, typer.Option(min=0, metavar="N", help="CPUs that each node has; by default all of this machine's.")
    ] = 0,
    memory: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Memory that each node has, such as 4Gi; by default all of this machine's."),
    ] = "",
    control_planes: Annotated[
        int, typer.Option(min=1, max=7, metavar="N", help="With --kubeadm: how many nodes run the control plane.")
    ] = 1,
    joined: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="With --kubeadm: how many of the last nodes join by nodewright join."),
    ] = 0,
    network: Annotated[
        Network,
        typer.Option(metavar="NETWORK", help="With --kubeadm: nodewright, or kindnet (kind's CNI DaemonSet)."),
    ] = Network.NODEWRIGHT,
    kubernetes: Annotated[
        Release,
        typer.Option(
            metavar="VERSION",
            help="Version of the control plane, 1.37 or 1.36; nodes stay the same. 1.36 is built first (10 minutes).",
        ),
    ] = Release.CURRENT,
    durable: Annotated[
        bool, typer.Option(help="Have etcd and containerd flush their writes to disk (fsync); slower.")
    ] = False,
    subnet: Annotated[
        str, typer.Option(metavar="CIDR", help="Subnet of the nodes; by default a free /24 of 10.89.0.0/16.")
    ] = "",
    images: Annotated[
        ImageSet, typer.Option(metavar="SET", help="Images the nodes have from the start: demo or conformance.")
    ] = ImageSet.DEMO,
    binaries: Binaries = None,
    plain: Plain = False,
) -> None:
    """Create a cluster on this machine. Run it again to repair whatever is missing.

    It returns when every node is Ready and the demo answers by ClusterIP, DNS name and NodePort.

    Examples:

    * `./nodewright up`

    * `./nodewright up --name lab --nodes 3 --no-demo`

    * `./nodewright up --name small --nodes 3 --cpus 1 --memory 2Gi`

    * `./nodewright up --name six --ip-family dual --routed`

    * `./nodewright up --name peer --agent upstream --proxy upstream`

    * `./nodewright up --name adm --kubeadm --proxy upstream`
    """
    options = {
        "nodes": nodes,
        "proxy_mode": str(proxy_mode),
        "demo": demo,
        "agent": str(agent),
        "proxy": str(proxy),
        "ip_family": str(ip_family),
        "routed": routed,
        "addons": addons,
        "uplink": uplink,
        "durable": durable,
        "kubeadm": kubeadm,
        "control_planes": control_planes,
        "joined": joined,
        "network": str(network),
        "kubernetes": str(kubernetes),
        "cpus": cpus,
        "memory": memory,
    }
    with reported():
        from cli.commands import up as work

        given = _given(context, options)
        work.run(name, given, subnet=subnet, images=str(images), binaries=binaries, plain=plain)


def _given(context: typer.Context, options: dict[str, Any]) -> dict[str, Any]:
    """The options that the user gave: only those may contradict an existing cluster."""
    sources = {key: context.get_parameter_source(key) for key in options}
    return {key: value for key, value in options.items() if (source := sources[key]) and source.name != "DEFAULT"}


@command("Cluster")
def down(name: Name = DEFAULT, plain: Plain = False) -> None:
    """Remove a cluster: its processes, namespaces, links, mounts, cgroups, rules and files. The cache stays."""
    with reported():
        from cli.commands import down as work

        work.run(name, plain=plain)


@command("Cluster", settings=PASS)
def kubectl(context: typer.Context, name: Name = DEFAULT) -> None:
    """Run kubectl on a cluster. Write `--` before kubectl's own arguments.

    Examples:

    * `./nodewright kubectl -- get pods -A -o wide`

    * `./nodewright kubectl --name lab -- exec -it deploy/demo -- sh`
    """
    with reported():
        from cli.commands import kubectl as work

        work.run(name, context.args)


@command("Cluster")
def kubeconfig(name: Name = DEFAULT) -> None:
    """Print the path of a cluster's kubeconfig file: `export KUBECONFIG=$(./nodewright kubeconfig)`."""
    with reported():
        from cli.commands import kubectl as work

        work.kubeconfig(name)


@command("Cluster", settings=PASS)
def shell(
    context: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node, such as node1.")],
    name: Name = DEFAULT,
) -> None:
    """Open a shell on a node, or run a command there: write `--` before the command. Its exit status is passed on.

    What runs there is a process of the node: it sees the node's files, processes, network and cgroups. `ctr` finds the
    node's containerd, and `kubectl` works with the node's own rights.

    Examples:

    * `./nodewright shell node1`

    * `./nodewright shell node1 -- ctr containers ls`

    * `./nodewright shell node2 --name lab -- ps ax`
    """
    with reported():
        from cli.commands import shell as work

        work.run(name, node, context.args)


@command("Cluster")
def load(
    archives: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Archives made by docker save, podman save, skopeo and the like."),
    ],
    node: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="Load only on this node (may be repeated).")
    ] = None,
    name: Name = DEFAULT,
) -> None:
    """Load images from OCI or docker archives (plain or gzip) onto the nodes, without a registry.

    Examples:

    * `docker save -o web.tar web:v1 && ./nodewright load web.tar`

    * `./nodewright load web.tar db.tgz --node node2 --name lab`
    """
    with reported():
        from cli.commands import load as work

        work.run(name, archives, node or [])
