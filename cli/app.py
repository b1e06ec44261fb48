"""The table of commands, their options and their help. What a command does lies in cli.commands."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.choices import Bench, ImageSet, IPFamily, Maker, Network, Output, ProxyMode, Release, Suite, Tier
from cli.errors import reported

app = typer.Typer(
    name="nodewright",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Real Kubernetes nodes in Python, and a whole cluster of them on one machine.\n\n"
        "Start here: `./nodewright up`, then `./nodewright kubectl -- get pods -A`, then `./nodewright down`."
    ),
)

_PASS = {"allow_extra_args": True, "ignore_unknown_options": True}

Name = Annotated[str, typer.Option("--name", help="Which cluster of this machine.", envvar="NODEWRIGHT_NAME")]
Plain = Annotated[bool, typer.Option("--plain", help="Plain lines instead of a live display.")]
Binaries = Annotated[
    Path | None,
    typer.Option(help="Take binaries of these names from here instead of building them (official releases)."),
]
_DEFAULT = "nodewright"


@app.command(rich_help_panel="Cluster")
def up(
    context: typer.Context,
    name: Name = _DEFAULT,
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
def join(
    url: Annotated[str, typer.Argument(help="The API server, as https://HOST:6443.")] = "",
    token: Annotated[str, typer.Option(help="A bootstrap token, as `kubeadm token create` prints it.")] = "",
    ca_hash: Annotated[
        list[str] | None, typer.Option(help="The pin of the cluster's authority: sha256:HEX (may be repeated).")
    ] = None,
    ca_file: Annotated[str, typer.Option(help="The cluster's authority, as a PEM file.")] = "",
    kubeconfig: Annotated[str, typer.Option(help="Instead of a token: an admin's kubeconfig.")] = "",
    node_name: Annotated[str, typer.Option(help="By default this machine's name.")] = "",
    node_ip: Annotated[str, typer.Option(help="By default the address that leads to the API server.")] = "",
    pod_network: Annotated[str, typer.Option(help="auto (none where a CNI DaemonSet is), nodewright or none.")] = (
        "auto"
    ),
    proxy: Annotated[str, typer.Option(help="auto (none where kube-proxy is), nodewright or none.")] = "auto",
    cluster_cidr: Annotated[str, typer.Option(help="All pods; by default as kubeadm's configuration says.")] = "",
    kubelet_arg: Annotated[list[str] | None, typer.Option(help="One more flag of the agent (may be repeated).")] = None,
    print_rights: Annotated[
        bool, typer.Option("--print-rights", help="Only print what an admin applies before a join by token.")
    ] = False,
    plain: Plain = False,
) -> None:
    """Make this machine, or the namespace this runs in, a node of an existing cluster (kubeadm, kind, ...).

    Examples:

    * `./nodewright join https://10.0.0.5:6443 --token abcdef.0123456789abcdef --ca-hash sha256:...`

    * `./nodewright join --kubeconfig admin.conf --node-name worker9`

    * `./nodewright join --print-rights | kubectl apply -f -`
    """
    with reported():
        from cli.commands import join as command
        from controlplane.work.join import Request

        if print_rights:
            command.print_rights()
            return
        request = Request(
            url, token, tuple(ca_hash or ()), ca_file, kubeconfig, node_name, node_ip, pod_network, proxy, cluster_cidr
        )
        command.run(dataclasses.replace(request, arguments=tuple(kubelet_arg or ())), plain=plain)


@app.command(rich_help_panel="Cluster")
def leave(plain: Plain = False) -> None:
    """Undo `join` on this machine: its pods, daemons, mounts and files go."""
    with reported():
        from cli.commands import join as command

        command.run_leave(plain=plain)


Root = Annotated[str, typer.Option("--root", help="Another file tree than this host's: files only.")]


@app.command(rich_help_panel="Host")
def install(root: Root = "/") -> None:
    """Put the agent on this host where a kubelet is expected: commands, systemd units, sysctls, modules."""
    with reported():
        from cli.commands import install as command

        command.install(root)


@app.command(rich_help_panel="Host")
def uninstall(root: Root = "/") -> None:
    """Undo `install`: nothing of it stays."""
    with reported():
        from cli.commands import install as command

        command.uninstall(root)


@app.command(rich_help_panel="Cluster")
def down(name: Name = _DEFAULT, plain: Plain = False) -> None:
    """Remove a cluster: processes, namespaces, links, mounts, cgroups, rules and files. The cache stays."""
    with reported():
        from cli.commands import down as command

        command.run(name, plain=plain)


@app.command(rich_help_panel="Cluster")
def status(
    name: Name = _DEFAULT, as_json: Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")] = False
) -> None:
    """Show what a cluster is doing: nodes, daemons, pods, proxies. Works with a stopped API server too."""
    with reported():
        from cli.commands import status as command

        command.run(name, as_json=as_json)


@app.command(rich_help_panel="Cluster")
def why(
    pod: Annotated[str, typer.Argument(help="POD or NAMESPACE/POD; by default all that are not well.")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="The pod's namespace.")] = "default",
    name: Name = _DEFAULT,
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
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")] = False, binaries: Binaries = None
) -> None:
    """Look at this machine: every check at once, each with its fix. Exit status 1 if a cluster cannot run here."""
    with reported():
        from cli.commands import doctor as command

        command.run(as_json=as_json, binaries=binaries)


@app.command(rich_help_panel="Cluster")
def trace(
    come: Annotated[str, typer.Argument(metavar="FROM", help="A pod, a node, an address, or the word outside.")],
    to: Annotated[str, typer.Argument(metavar="TO[:PORT]", help="A Service, a pod or an address.")],
    name: Name = _DEFAULT,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Of names without one.")] = "default",
    protocol: Annotated[str, typer.Option(help="tcp or udp; by default what the Service's port says.")] = "",
    outside: Annotated[str, typer.Option(help="The address of outside; by default this machine's.")] = "",
    live: Annotated[bool, typer.Option("--live", help="Follow the next real connection instead of the rules.")] = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long --live waits.")] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")] = False,
) -> None:
    """Show the way of a packet through the rules that are in the kernels of the nodes, hop by hop, and why it ends.

    Exit status 1 when it cannot arrive.

    Examples:

    * `./nodewright trace shop/web-0 kube-system/kube-dns:53 --protocol udp`

    * `./nodewright trace outside demo`

    * `./nodewright trace node1 10.96.0.1:443 --live`
    """
    with reported():
        from cli.commands import trace as command

        wait = seconds if live else 0
        command.run(name, come, to, namespace=namespace, protocol=protocol, outside=outside, as_json=as_json, live=wait)


@app.command(rich_help_panel="Cluster")
def service(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="NAME or NAMESPACE/NAME.")],
    name: Name = _DEFAULT,
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


@app.command(rich_help_panel="Cluster", context_settings=_PASS)
def kubectl(context: typer.Context, name: Name = _DEFAULT) -> None:
    """Run kubectl on a cluster.

    Examples:

    * `./nodewright kubectl -- get pods -A -o wide`

    * `./nodewright kubectl --name lab -- exec -it deploy/demo -- sh`
    """
    with reported():
        from cli.commands import kubectl as command

        command.run(name, context.args)


@app.command(rich_help_panel="Cluster")
def kubeconfig(name: Name = _DEFAULT) -> None:
    """Print the path of a cluster's kubeconfig file: `export KUBECONFIG=$(./nodewright kubeconfig)`."""
    with reported():
        from cli.commands import kubectl as command

        command.kubeconfig(name)


@app.command(rich_help_panel="Nodes")
def payload(
    folder: Annotated[Path, typer.Argument(help="Where to write it: an empty folder, or one written before.")],
    binaries: Binaries = None,
    plain: Plain = False,
) -> None:
    """Write what a machine without a way out needs to become a node: project, packages, binaries, images."""
    with reported():
        from cli.commands import payload as command

        command.run(folder, binaries=binaries, plain=plain)


@app.command(rich_help_panel="Tests", context_settings={**_PASS, "help_option_names": []})
def test(context: typer.Context) -> None:
    """Run every test tier in order: lint, types, import contracts, unit, netns, cluster, conformance smoke.

    Arguments go to pytest. With a path or -k among them, only what they select runs.

    Examples:

    * `./nodewright test`

    * `./nodewright test tests/unit -q`
    """
    with reported():
        from cli.commands import test as command

        command.run(context.args)


@app.command(rich_help_panel="Tests")
def conformance(
    name: Name = _DEFAULT,
    tier: Annotated[Tier, typer.Option(help="smoke: 7 tests; dev: 28; full: all that are not serial.")] = Tier.SMOKE,
    focus: Annotated[str, typer.Option(help="Instead of a tier: a regular expression on full test names.")] = "",
    skip: Annotated[str, typer.Option(help="A regular expression of tests to leave out.")] = "",
    suite: Annotated[Suite, typer.Option(help="e2e: against a cluster; node: a kubelet alone (e2e_node.test).")] = (
        Suite.E2E
    ),
    agent: Annotated[Maker, typer.Option(help="With --suite node: whose kubelet.")] = Maker.NODEWRIGHT,
    standalone: Annotated[bool, typer.Option(help="With --suite node: a kubelet without an API server.")] = False,
    labels: Annotated[str, typer.Option(help="With --suite node: a ginkgo label expression instead of its own.")] = "",
    procs: Annotated[int, typer.Option(min=1, help="Test processes side by side.")] = 4,
    serial: Annotated[bool, typer.Option(help="With full: the serial and disruptive tests too, alone at the end.")] = (
        False
    ),
    dry_run: Annotated[bool, typer.Option(help="Only list what would run.")] = False,
    results: Annotated[
        Path | None, typer.Option(help="Directory for JUnit, JSON and the log; by default below the cluster's.")
    ] = None,
    binaries: Binaries = None,
    plain: Plain = False,
) -> None:
    """Run upstream's e2e suite against a cluster: a table by feature, JUnit, JSON, and the exit status.

    Examples:

    * `./nodewright conformance`

    * `./nodewright conformance --tier full --procs 8`

    * `./nodewright conformance --focus 'should provide DNS for services'`

    * `./nodewright conformance --suite node --agent upstream --procs 8`
    """
    with reported():
        from cli.commands import conformance as command

        if suite is Suite.NODE:
            name = "node-suite" if name == _DEFAULT else name
            order = command.node_order(name, str(agent), labels, focus, skip, procs, results, binaries, standalone)
            command.run_node(order, plain=plain)
            return
        command.run(
            name,
            str(tier),
            focus=focus,
            skip=skip,
            procs=procs,
            serial=serial,
            dry_run=dry_run,
            results=results,
            binaries=binaries,
            plain=plain,
        )


@app.command(rich_help_panel="Tests")
def bench(
    what: Annotated[Bench, typer.Argument(help="What to measure.")],
    peer: Annotated[Maker | None, typer.Option(help="Then the same with upstream's kubelet or kube-proxy.")] = (None),
    burst: Annotated[int, typer.Option(min=1, help="pods: how many at once in the burst.")] = 60,
    sizes: Annotated[str, typer.Option(help="services: numbers of Services, of two endpoints each.")] = "1000,5000",
    modes: Annotated[str, typer.Option(help="services: modes of the proxy.")] = "iptables,nftables",
    steps: Annotated[str, typer.Option(help="services: cold, path, change, churn.")] = "cold",
    dense: Annotated[bool, typer.Option("--dense", help="services: 5,000 of 50 endpoints as well.")] = False,
    limit: Annotated[float, typer.Option(min=1, help="services: seconds until a first sync is given up.")] = 280,
    minutes: Annotated[float, typer.Option(min=0.5, help="soak: how long.")] = 10,
    seed: Annotated[int, typer.Option(help="soak: of its random changes.")] = 1,
    write: Annotated[bool, typer.Option("--write", help="Put the table into docs/benchmarks.md.")] = False,
    binaries: Binaries = None,
    plain: Plain = False,
) -> None:
    """Measure on this machine: raises clusters (or namespaces) of its own and removes them again.

    Examples:

    * `./nodewright bench pods --peer upstream`

    * `./nodewright bench network --peer upstream`

    * `./nodewright bench services --peer upstream --sizes 10000 --modes nftables --steps cold,change,churn,path`
    """
    with reported():
        from cli.commands import bench as command

        order = command.Order(
            peer=peer is Maker.UPSTREAM,
            burst=burst,
            sizes=sizes,
            modes=modes,
            steps=steps,
            dense=dense,
            limit=limit,
            minutes=minutes,
            seed=seed,
            write=write,
            binaries=binaries,
            plain=plain,
        )
        command.run(what, order)


@app.command(rich_help_panel="Daemons", context_settings={**_PASS, "help_option_names": []})
def agent(context: typer.Context) -> None:
    """Run the node agent: the kubelet's own flags and KubeletConfiguration file (`agent --help` lists them)."""
    from cli import node_main

    raise SystemExit(node_main.main(context.args))


@app.command(rich_help_panel="Daemons", context_settings={**_PASS, "help_option_names": []})
def kubelet(context: typer.Context) -> None:
    """The agent in the place of upstream's kubelet: the same flags, and no pod network unless it is asked for."""
    from cli import node_main

    raise SystemExit(node_main.main(context.args, pod_network="none"))


@app.command("kube-proxy", rich_help_panel="Daemons", context_settings={**_PASS, "help_option_names": []})
def kube_proxy(context: typer.Context) -> None:
    """The proxy under upstream's name."""
    from proxy.app import main as run

    raise SystemExit(run(context.args))


@app.command(rich_help_panel="Daemons", context_settings={**_PASS, "help_option_names": []})
def proxy(context: typer.Context) -> None:
    """Run the service proxy: kube-proxy's flags and KubeProxyConfiguration file (`proxy --help` lists them)."""
    from proxy.app import main as run

    raise SystemExit(run(context.args))


def main() -> int:
    """Exit status as typer gives it."""
    app(prog_name="nodewright")
    return 0
