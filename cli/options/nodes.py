"""Commands that make this machine a node, install the daemons on it, or run them in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.errors import reported
from cli.options.application import PASS, command
from cli.options.shared import Binaries, Plain
from nodelib.daemons.process_name import answer_to

# The daemons parse upstream's flags themselves, --help included.
_OWN_HELP = {**PASS, "help_option_names": []}
Root = Annotated[
    str,
    typer.Option("--root", metavar="DIR", help="Another file tree than this host's; only files are written there."),
]


@command("Nodes")
def join(
    url: Annotated[str, typer.Argument(metavar="URL", help="The API server, as https://HOST:6443.")] = "",
    token: Annotated[
        str,
        typer.Option(
            metavar="TOKEN",
            help="A bootstrap token, as kubeadm token create prints it, or @FILE with one: every user of the machine"
            " sees command lines.",
        ),
    ] = "",
    ca_hash: Annotated[
        list[str] | None,
        typer.Option(
            metavar="sha256:HEX",
            help="Hash of the cluster's CA key, as kubeadm prints it (may be repeated).",
        ),
    ] = None,
    ca_file: Annotated[str, typer.Option(metavar="FILE", help="The cluster's CA certificate, as a PEM file.")] = "",
    unsafe_skip_ca_verification: Annotated[
        bool,
        typer.Option(
            "--unsafe-skip-ca-verification",
            help="Join by token without --ca-hash or --ca-file: whoever has the token can then take this machine over.",
        ),
    ] = False,
    kubeconfig: Annotated[str, typer.Option(metavar="FILE", help="An admin's kubeconfig instead of a token.")] = "",
    node_name: Annotated[str, typer.Option(metavar="NAME", help="By default this machine's name.")] = "",
    node_ip: Annotated[
        str, typer.Option(metavar="ADDRESS", help="By default the address used to reach the API server.")
    ] = "",
    pod_network: Annotated[
        str,
        typer.Option(metavar="NETWORK", help="nodewright, none, or auto: none if the cluster has a CNI DaemonSet."),
    ] = "auto",
    proxy: Annotated[
        str, typer.Option(metavar="PROXY", help="nodewright, none, or auto: none if the cluster has kube-proxy.")
    ] = "auto",
    cluster_cidr: Annotated[
        str, typer.Option(metavar="CIDR", help="Range of all pods; by default taken from kubeadm's configuration.")
    ] = "",
    network_policy: Annotated[
        bool,
        typer.Option(
            "--network-policy/--no-network-policy",
            help="Enforce NetworkPolicies for the node's pods; with our pod network only. Nodes may then read all pods"
            " of the cluster.",
        ),
    ] = False,
    cri_socket: Annotated[
        str,
        typer.Option(
            metavar="SOCKET",
            help="A container runtime that runs already, such as CRI-O at unix:///var/run/crio/crio.sock. By default"
            " containerd's, which is started where none runs.",
        ),
    ] = "",
    kubelet_arg: Annotated[
        list[str] | None, typer.Option(metavar="FLAG", help="One more flag for the agent (may be repeated).")
    ] = None,
    print_rights: Annotated[
        bool,
        typer.Option("--print-rights", help="Only print the RBAC objects an admin applies before a join by token."),
    ] = False,
    plain: Plain = False,
) -> None:
    """Make this machine (or network namespace) a node of an existing cluster, made by kubeadm, kind or others.

    Examples:

    * `./nodewright join https://10.0.0.5:6443 --token abcdef.0123456789abcdef --ca-hash sha256:...`

    * `./nodewright join --kubeconfig admin.conf --node-name worker9`

    * `./nodewright join --print-rights | kubectl apply -f -` (with --network-policy, what policies need, too)
    """
    with reported():
        from cli.commands import join as work
        from controlplane.host.model import Request

        if print_rights:
            work.print_rights(policies=network_policy)
            return
        request = Request(
            server=url,
            token=token,
            pins=tuple(ca_hash or ()),
            ca_file=ca_file,
            skip_verification=unsafe_skip_ca_verification,
            kubeconfig=kubeconfig,
            node=node_name,
            node_ip=node_ip,
            network=pod_network,
            proxy=proxy,
            cluster_cidr=cluster_cidr,
            policies=network_policy,
            runtime=cri_socket,
            arguments=tuple(kubelet_arg or ()),
        )
        work.run(request, plain=plain)


@command("Nodes")
def leave(plain: Plain = False) -> None:
    """Undo `join` on this machine: removes its pods, daemons, mounts and files."""
    with reported():
        from cli.commands import join as work

        work.run_leave(plain=plain)


@command("Nodes")
def install(root: Root = "/") -> None:
    """Install the agent on this host in place of a kubelet: commands, systemd units, sysctls, kernel modules."""
    with reported():
        from cli.commands import install as work

        work.install(root)


@command("Nodes")
def uninstall(
    root: Root = "/",
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Also remove the cache with the Python environment, after showing what goes."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --purge: do not ask.")] = False,
) -> None:
    """Undo `install` completely; with --purge remove everything that nodewright keeps on this machine.

    That is the cache: binaries, images, the Python environment. Clusters are removed with `down` before. The Debian
    packages that were installed stay, because others may need them by now; the command that removes them is printed.

    Examples:

    * `./nodewright uninstall`

    * `./nodewright uninstall --purge`
    """
    with reported():
        if purge:
            from cli.commands import purge as whole

            whole.run(root, yes=yes)
            return
        from cli.commands import install as work

        work.uninstall(root)


@command("Nodes")
def payload(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to write it: an empty directory, or one written before.")
    ],
    binaries: Binaries = None,
    plain: Plain = False,
) -> None:
    """Write what a machine without internet access needs to become a node: project, packages, binaries, images."""
    with reported():
        from cli.commands import payload as work

        work.run(folder, binaries=binaries, plain=plain)


@command("Nodes")
def package(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it.")] = Path(),
    plain: Plain = False,
) -> None:
    """Build a Debian package of the committed tree: kubelet, kube-proxy, units. dpkg can remove all of it again."""
    with reported():
        from cli.commands import package as work

        work.run(folder, plain=plain)


@command("Nodes")
def release(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to write it: an empty directory, or an earlier release.")
    ],
    plain: Plain = False,
) -> None:
    """Make what the project publishes from the commit: wheels, Debian package, list of parts, licences, checksums.

    The folder serves a machine without internet access, and `up --release DIR` of a source tree.

    Example: `./nodewright release dist`
    """
    with reported():
        from cli.commands import release as work

        work.run(folder, plain=plain)


@command("Daemons", settings=_OWN_HELP)
def agent(context: typer.Context) -> None:
    """Run the node agent with the kubelet's flags and KubeletConfiguration file (`agent --help` lists them)."""
    from cli import node_main

    answer_to(node_main.NAME, context.args)
    raise SystemExit(node_main.main(context.args))


@command("Daemons", settings=_OWN_HELP)
def kubelet(context: typer.Context) -> None:
    """Run the agent in place of upstream's kubelet: the same flags, and a pod network only if you ask for it."""
    from cli import node_main

    answer_to(node_main.NAME, context.args)
    raise SystemExit(node_main.main(context.args, pod_network="none"))


@command("Daemons", name="kube-proxy", settings=_OWN_HELP)
def kube_proxy(context: typer.Context) -> None:
    """Run the service proxy under upstream's name."""
    from proxy.app import main as run

    answer_to("kube-proxy", context.args)
    raise SystemExit(run(context.args))


@command("Daemons", settings=_OWN_HELP)
def loadbalancer(context: typer.Context) -> None:
    """Run the daemon that gives addresses to Services of type LoadBalancer (`loadbalancer --help` lists its flags)."""
    from loadbalancer.app import main as run

    raise SystemExit(run(context.args))


@command("Daemons", settings=_OWN_HELP)
def proxy(context: typer.Context) -> None:
    """Run the service proxy with kube-proxy's flags and KubeProxyConfiguration file (`proxy --help` lists them)."""
    from proxy.app import main as run

    answer_to("kube-proxy", context.args)
    raise SystemExit(run(context.args))
