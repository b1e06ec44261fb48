"""Commands that create, stop, start, list and remove clusters on this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.errors import reported
from cli.options.application import command
from cli.options.choices import ImageSet, IPFamily, Maker, Network, Output, ProxyMode, Release
from cli.options.shared import DEFAULT, Binaries, Name, NewName, OutputOption, Plain, ReleaseFolder


@command("Cluster")
def up(
    context: typer.Context,
    name: NewName = DEFAULT,
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
    network_policy: Annotated[
        bool,
        typer.Option(
            "--network-policy/--no-network-policy",
            help="Enforce NetworkPolicies on the nodes (never with --kubeadm or --agent upstream).",
        ),
    ] = True,
    load_balancer: Annotated[
        bool,
        typer.Option(
            "--load-balancer/--no-load-balancer",
            help="Give addresses to Services of type LoadBalancer (never with --kubeadm or --routed).",
        ),
    ] = True,
    load_balancer_pool: Annotated[
        str,
        typer.Option(
            metavar="RANGES",
            help="Addresses for --load-balancer, such as 10.89.7.200-10.89.7.250; by default the last quarter of the"
            " nodes' subnet.",
        ),
    ] = "",
    storage: Annotated[
        bool,
        typer.Option(
            "--storage/--no-storage",
            help="Make volumes for claims without a class: a default StorageClass (built first, a few minutes;"
            " never with --kubeadm).",
        ),
    ] = False,
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
            help="Add-ons besides DNS, separated by commas: metrics (for kubectl top), ingress (Traefik). Each is built"
            " first (some minutes).",
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
        int,
        typer.Option(
            min=0, metavar="N", show_default=False, help="CPUs that each node has; by default all of this machine's."
        ),
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
    config: Annotated[
        str,
        typer.Option(metavar="FILE", help="Read the cluster from this YAML file (- for stdin). Flags win over it."),
    ] = "",
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Only print the whole file of the cluster that would be made.")
    ] = False,
    print_schema: Annotated[
        bool, typer.Option("--print-schema", help="Only print the JSON Schema of that file, for editors.")
    ] = False,
    binaries: Binaries = None,
    release: ReleaseFolder = None,
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="NODEWRIGHT_KUBECONFIG",
            help="Put the context nodewright-NAME into this file; by default into the first of $KUBECONFIG that "
            "exists, or ~/.kube/config.",
        ),
    ] = None,
    no_kubeconfig: Annotated[
        bool, typer.Option("--no-kubeconfig", help="Leave every kubeconfig alone, as --kubeconfig '' does.")
    ] = False,
    plain: Plain = False,
) -> None:
    """Create a cluster on this machine. Run it again to repair whatever is missing.

    It returns when every node is Ready and the demo answers by ClusterIP, DNS name and NodePort. Your kubectl then has
    the context `nodewright-NAME`, and uses it if the cluster is new; `down` removes it again.

    Examples:

    * `./nodewright up`

    * `./nodewright up --name lab --nodes 3 --no-demo`

    * `./nodewright up --name small --nodes 3 --cpus 1 --memory 2Gi`

    * `./nodewright up --name six --ip-family dual --routed`

    * `./nodewright up --name peer --agent upstream --proxy upstream`

    * `./nodewright up --name adm --kubeadm --proxy upstream`

    * `./nodewright up --release dist` (the folder of `./nodewright release dist`)

    * `./nodewright up --config cluster.yaml` (docs/config.md says what the file may hold)

    * `./nodewright up --nodes 3 --print-config > cluster.yaml`
    """
    options = {
        "nodes": nodes,
        "proxy_mode": str(proxy_mode),
        "demo": demo,
        "agent": str(agent),
        "proxy": str(proxy),
        "network_policy": network_policy,
        "load_balancer": load_balancer,
        "load_balancer_pool": load_balancer_pool,
        "storage": storage,
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
        named = _given(context, {"name": name, "images": str(images)})
        line = work.Line(
            config, subnet, named.get("images", ""), binaries, "" if no_kubeconfig else kubeconfig, release
        )
        asked_name = named.get("name", "")
        if print_schema:
            work.print_schema()
        elif print_config:
            work.print_config(asked_name, given, line)
        else:
            work.run(asked_name, given, line, plain=plain)


def _given(context: typer.Context, options: dict[str, Any]) -> dict[str, Any]:
    """The options that the user gave: only those may contradict an existing cluster."""
    sources = {key: context.get_parameter_source(key) for key in options}
    return {key: value for key, value in options.items() if (source := sources[key]) and source.name != "DEFAULT"}


@command("Cluster")
def down(
    name: Name = DEFAULT,
    every: Annotated[bool, typer.Option("--all", help="Remove every cluster of this machine.")] = False,
    plain: Plain = False,
) -> None:
    """Remove a cluster: its processes, namespaces, links, mounts, cgroups, rules and files, and its context in your
    kubeconfig. The cache stays.

    Without --name it takes the only cluster of this machine, or the one called nodewright. If there are several others,
    none is removed, and the exit status is 1.
    """
    with reported():
        from cli.commands import down as work

        if every:
            work.run_all(plain=plain)
        else:
            work.run(name, plain=plain)


@command("Cluster")
def clusters(
    output: OutputOption = Output.TEXT,
) -> None:
    """List the clusters of this machine: state, Ready nodes, version, age, memory. Exit status 1 if one is broken."""
    with reported():
        from cli.commands import clusters as work

        work.run(as_json=output is Output.JSON)


@command("Cluster")
def stop(
    name: Name = DEFAULT,
    grace: Annotated[
        int, typer.Option(min=0, max=3600, metavar="SECONDS", help="How long containers may take to end.")
    ] = 10,
    plain: Plain = False,
) -> None:
    """Stop a cluster: end all of its processes and keep its state. `start` brings it back, also after a reboot."""
    with reported():
        from cli.commands import clusters as work

        work.stop(name, grace, plain=plain)


@command("Cluster")
def start(name: Name = DEFAULT, plain: Plain = False) -> None:
    """Start a cluster that was stopped, or that ended with a reboot of this machine."""
    with reported():
        from cli.commands import clusters as work

        work.start(name, plain=plain)
