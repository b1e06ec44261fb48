"""The commands about a cluster of this machine, their options and help. What a command does lies in cli.commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.choices import ImageSet, IPFamily, Maker, Network, Output, ProxyMode, Release
from cli.errors import reported
from cli.root import DEFAULT, PASS, Binaries, Name, Plain, app


@app.command(rich_help_panel="Cluster")
def up(
    context: typer.Context,
    name: Name = DEFAULT,
    nodes: Annotated[int, typer.Option(min=1, max=20, help="How many nodes.")] = 2,
    proxy_mode: Annotated[ProxyMode, typer.Option(help="How the proxy programs Services.")] = ProxyMode.IPTABLES,
    demo: Annotated[bool, typer.Option(help="Deploy a web server on every node, and ask it by every way.")] = True,
    agent: Annotated[Maker, typer.Option(help="Whose kubelet; upstream's is the peer to compare with.")] = (
        Maker.NODEWRIGHT
    ),
    proxy: Annotated[Maker, typer.Option(help="Whose kube-proxy.")] = Maker.NODEWRIGHT,
    ip_family: Annotated[IPFamily, typer.Option(help="Addresses of nodes, pods and Services.")] = IPFamily.IPV4,
    routed: Annotated[
        bool, typer.Option("--routed", help="Each node on a link of its own, a router between: pods meet by VXLAN.")
    ] = False,
    addons: Annotated[
        str,
        typer.Option(
            "--addons", help="Beside DNS, by commas: metrics (`kubectl top`), ingress (Traefik, built first)."
        ),
    ] = "",
    uplink: Annotated[bool, typer.Option(help="Let pods reach the network of this machine, masqueraded.")] = True,
    kubeadm: Annotated[
        bool, typer.Option("--kubeadm", help="By kubeadm init and join; the control plane runs as static pods.")
    ] = False,
    control_planes: Annotated[
        int, typer.Option(min=1, max=7, help="With --kubeadm: how many of the nodes hold the control plane.")
    ] = 1,
    joined: Annotated[
        int,
        typer.Option(min=0, help="With --kubeadm: how many of the last nodes come by `nodewright join`."),
    ] = 0,
    network: Annotated[Network, typer.Option(help="With --kubeadm: a CNI DaemonSet like kind's in place of ours.")] = (
        Network.NODEWRIGHT
    ),
    kubernetes: Annotated[
        Release, typer.Option(help="Of the control plane; the nodes are the same. 1.36 is built first (10 minutes).")
    ] = Release.CURRENT,
    durable: Annotated[
        bool, typer.Option(help="Write etcd's and containerd's data to disk before going on (fsync); slower.")
    ] = False,
    subnet: Annotated[str, typer.Option(help="The nodes' subnet; by default a free /24 of 10.89.0.0/16.")] = "",
    images: Annotated[ImageSet, typer.Option(help="Images that the nodes hold from the start.")] = ImageSet.DEMO,
    binaries: Binaries = None,
    plain: Plain = False,
) -> None:
    """Raise a cluster on this machine; run again, mend what is missing of it.

    It ends when every node is Ready and the demo answers by ClusterIP, DNS name and NodePort.

    Examples:

    * `./nodewright up`

    * `./nodewright up --name lab --nodes 3 --no-demo`

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
    }
    with reported():
        from cli.commands import up as command

        given = _given(context, options)
        command.run(name, given, subnet=subnet, images=str(images), binaries=binaries, plain=plain)


def _given(context: typer.Context, options: dict[str, Any]) -> dict[str, Any]:
    """The options that the user named: those alone may contradict a cluster that is there."""
    sources = {key: context.get_parameter_source(key) for key in options}
    return {key: value for key, value in options.items() if (source := sources[key]) and source.name != "DEFAULT"}


@app.command(rich_help_panel="Cluster")
def down(name: Name = DEFAULT, plain: Plain = False) -> None:
    """Remove a cluster: processes, namespaces, links, mounts, cgroups, rules and files. The cache stays."""
    with reported():
        from cli.commands import down as command

        command.run(name, plain=plain)


@app.command(rich_help_panel="Cluster")
def status(
    name: Name = DEFAULT, as_json: Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")] = False
) -> None:
    """Show what a cluster is doing: nodes, daemons, pods, proxies. Works with a stopped API server too."""
    with reported():
        from cli.commands import status as command

        command.run(name, as_json=as_json)


@app.command(rich_help_panel="Cluster")
def why(
    pod: Annotated[str, typer.Argument(help="POD or NAMESPACE/POD; by default all that are not well.")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="The pod's namespace.")] = "default",
    name: Name = DEFAULT,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to show it.")] = Output.TEXT,
    kubeconfig: Annotated[str, typer.Option(help="On a machine without a cluster of `up`: how to reach the API.")] = "",
) -> None:
    """Say why a pod is not running, not ready or not gone: what it waits for, since when, the error, what to do.

    From the record of the pod's own node: every step with its duration, the next try, why a container ended. It
    works with a stopped API server too, and for a pod that no node has yet.

    Examples:

    * `./nodewright why`

    * `./nodewright why web-0 -n shop`

    * `./nodewright why shop/web-0 --output json`
    """
    with reported():
        from cli.commands import why as command

        command.run(name, pod, namespace, as_json=output is Output.JSON, kubeconfig=kubeconfig)


@app.command(rich_help_panel="Cluster")
def images(
    node: Annotated[str, typer.Argument(help="By default every node that answers.")] = "",
    free: Annotated[str, typer.Option(help="A dry run: what would go to free so much (5Gi); nothing does.")] = "",
    name: Name = DEFAULT,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to show it.")] = Output.TEXT,
) -> None:
    """Show what holds each image of a node, what garbage collection removes next, and what the last one freed.

    Examples:

    * `./nodewright images node1`

    * `./nodewright images node1 --free 5Gi`
    """
    with reported():
        from cli.commands import images as command

        command.run(name, node, free, as_json=output is Output.JSON)


@app.command(rich_help_panel="Cluster")
def doctor(
    name: Name = DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")] = False,
    binaries: Binaries = None,
) -> None:
    """Look at this machine and at a cluster's nodes: every check, with its fix. Exit status 1 if `up` cannot work."""
    with reported():
        from cli.commands import doctor as command

        command.run(name, as_json=as_json, binaries=binaries)


@app.command(rich_help_panel="Cluster")
def trace(
    come: Annotated[str, typer.Argument(metavar="FROM", help="A pod, a node, an address, or the word outside.")],
    to: Annotated[str, typer.Argument(metavar="TO[:PORT]", help="A Service, a pod or an address.")],
    name: Name = DEFAULT,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Of names without one.")] = "default",
    protocol: Annotated[str, typer.Option(help="tcp or udp; by default what the Service's port says.")] = "",
    outside: Annotated[str, typer.Option(help="The address of outside; by default this machine's.")] = "",
    live: Annotated[bool, typer.Option("--live", help="Follow the next real connection instead of the rules.")] = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long --live waits.")] = 30,
    verbose: Annotated[bool, typer.Option("--verbose", help="Each rule that matched, with its counter.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")] = False,
) -> None:
    """Say whether a packet arrives, by the rules and routes that the kernels of the nodes have, and why it does not.

    Exit status 1 when it cannot arrive.

    Examples:

    * `./nodewright trace shop/web-0 kube-system/kube-dns:53 --protocol udp`

    * `./nodewright trace outside demo`

    * `./nodewright trace node1 10.96.0.1:443 --live`
    """
    with reported():
        from cli.commands import trace as command

        wait = seconds if live else 0
        output = "json" if as_json else "verbose" if verbose else "text"
        command.run(name, come, to, namespace=namespace, protocol=protocol, outside=outside, output=output, live=wait)


@app.command(rich_help_panel="Cluster")
def service(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="NAME or NAMESPACE/NAME.")],
    name: Name = DEFAULT,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Of a name without one.")] = "default",
    node: Annotated[str, typer.Option(help="Only as this node serves it.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")] = False,
) -> None:
    """Show a Service as the nodes serve it: endpoints and why one is left out, rules with counters, connections.

    Examples:

    * `./nodewright service demo`

    * `./nodewright service kube-system/kube-dns --node node1`
    """
    with reported():
        from cli.commands import service as command

        command.run(name, service, namespace=namespace, node=node, as_json=as_json)


@app.command(rich_help_panel="Cluster", context_settings=PASS)
def kubectl(context: typer.Context, name: Name = DEFAULT) -> None:
    """Run kubectl on a cluster.

    Examples:

    * `./nodewright kubectl -- get pods -A -o wide`

    * `./nodewright kubectl --name lab -- exec -it deploy/demo -- sh`
    """
    with reported():
        from cli.commands import kubectl as command

        command.run(name, context.args)


@app.command(rich_help_panel="Cluster")
def kubeconfig(name: Name = DEFAULT) -> None:
    """Print the path of a cluster's kubeconfig file: `export KUBECONFIG=$(./nodewright kubeconfig)`."""
    with reported():
        from cli.commands import kubectl as command

        command.kubeconfig(name)


@app.command(rich_help_panel="Cluster")
def load(
    archives: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Of docker save, podman save, skopeo, ...")],
    node: Annotated[list[str] | None, typer.Option(help="Only on this node (may be repeated).")] = None,
    name: Name = DEFAULT,
) -> None:
    """Give the nodes images from OCI or docker archives (plain or gzip): no registry is asked.

    Examples:

    * `docker save -o web.tar web:v1 && ./nodewright load web.tar`

    * `./nodewright load web.tar db.tgz --node node2 --name lab`
    """
    with reported():
        from cli.commands import load as command

        command.run(name, archives, node or [])
