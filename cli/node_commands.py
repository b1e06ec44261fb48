"""The commands of a node: joining, the host's installation, the daemons. What a command does lies in cli.commands."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from cli.errors import reported
from cli.root import PASS, Binaries, Plain, app


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
        from controlplane.host.work.join import Request

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


@app.command(rich_help_panel="Host")
def package(
    folder: Annotated[Path, typer.Argument(help="Where to write it.")] = Path(),
    plain: Plain = False,
) -> None:
    """Make a Debian package of the committed tree: kubelet, kube-proxy, units. What it installs, dpkg removes again."""
    with reported():
        from cli.commands import package as command

        command.run(folder, plain=plain)


@app.command(rich_help_panel="Daemons", context_settings={**PASS, "help_option_names": []})
def agent(context: typer.Context) -> None:
    """Run the node agent: the kubelet's own flags and KubeletConfiguration file (`agent --help` lists them)."""
    from cli import node_main

    raise SystemExit(node_main.main(context.args))


@app.command(rich_help_panel="Daemons", context_settings={**PASS, "help_option_names": []})
def kubelet(context: typer.Context) -> None:
    """The agent in the place of upstream's kubelet: the same flags, and no pod network unless it is asked for."""
    from cli import node_main

    raise SystemExit(node_main.main(context.args, pod_network="none"))


@app.command("kube-proxy", rich_help_panel="Daemons", context_settings={**PASS, "help_option_names": []})
def kube_proxy(context: typer.Context) -> None:
    """The proxy under upstream's name."""
    from proxy.app import main as run

    raise SystemExit(run(context.args))


@app.command(rich_help_panel="Daemons", context_settings={**PASS, "help_option_names": []})
def proxy(context: typer.Context) -> None:
    """Run the service proxy: kube-proxy's flags and KubeProxyConfiguration file (`proxy --help` lists them)."""
    from proxy.app import main as run

    raise SystemExit(run(context.args))
