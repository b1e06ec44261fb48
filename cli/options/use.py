"""Commands that use a cluster of this machine: kubectl, a shell on a node, images for the nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors import reported
from cli.options.application import PASS, command
from cli.options.plain_help import KubectlCommand
from cli.options.shared import DEFAULT, Name


@command("Cluster", cls=KubectlCommand)
def kubectl(context: typer.Context, name: Name = DEFAULT) -> None:
    """Run kubectl on a cluster. Every option after kubectl's first word is kubectl's; its exit status is passed on.

    Examples:

    * `./nodewright kubectl get pods -A -o wide`

    * `./nodewright kubectl get --help`

    * `./nodewright kubectl --name lab exec -it deploy/demo -- sh`
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
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGE|FILE",
            help="Images of docker or podman on this machine, by name, or archives made by docker save, podman save, "
            "skopeo and the like.",
        ),
    ],
    node: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="Load only on this node (may be repeated).")
    ] = None,
    name: Name = DEFAULT,
) -> None:
    """Put images onto the nodes without a registry: from docker or podman, or from OCI or docker archives.

    Archives may be compressed with gzip. Exit status 1 if one failed, after all others have been tried.

    Examples:

    * `docker build -t web:v1 . && ./nodewright load web:v1`

    * `./nodewright load web.tar db.tgz --node node2 --name lab`
    """
    with reported():
        from cli.commands import load as work

        work.run(name, sources, node or [])


@command("Cluster")
def unload(
    images: Annotated[list[str], typer.Argument(metavar="IMAGE", help="Names of images, such as web:v1.")],
    node: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="Remove only from this node (may be repeated).")
    ] = None,
    name: Name = DEFAULT,
) -> None:
    """Remove images from the nodes. One that a container was made from stays, which is an error.

    Examples:

    * `./nodewright unload web:v1`

    * `./nodewright unload web:v1 --node node2 --name lab`
    """
    with reported():
        from cli.commands import load as work

        work.unload(name, images, node or [])
