"""Commands that change what a living cluster is made of: its nodes and its add-ons."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors import reported
from cli.options.application import PlainCommand, PlainGroup, app
from cli.options.choices import Output
from cli.options.shared import DEFAULT, Json, Name, OutputOption, Plain, wants_json

_HELP = {"help_option_names": ["-h", "--help"]}
node_app = typer.Typer(
    cls=PlainGroup, no_args_is_help=True, context_settings=_HELP, help="Add a node to a cluster, or remove one."
)
addons_app = typer.Typer(
    cls=PlainGroup, no_args_is_help=True, context_settings=_HELP, help="List, add and remove a cluster's add-ons."
)
app.add_typer(node_app, name="node", rich_help_panel="Cluster")
app.add_typer(addons_app, name="addons", rich_help_panel="Cluster")


@node_app.command("add", cls=PlainCommand)
def node_add(
    node: Annotated[
        str, typer.Argument(metavar="[NODE]", help="Its name; by default the next free one, such as node3.")
    ] = "",
    labels: Annotated[str, typer.Option(metavar="K=V,...", help="Labels of the node.")] = "",
    taints: Annotated[str, typer.Option(metavar="K=V:EFFECT,...", help="Taints of the node.")] = "",
    cpus: Annotated[
        int,
        typer.Option(min=0, metavar="N", show_default=False, help="CPUs that it has; by default what all nodes have."),
    ] = 0,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory that it has, such as 4Gi; by default what all nodes have.")
    ] = "",
    name: Name = DEFAULT,
    plain: Plain = False,
) -> None:
    """Add a node to a cluster; it returns when the node is Ready. Later runs of `up` know the node.

    Examples:

    * `./nodewright node add`

    * `./nodewright node add gpu1 --labels gpu=true --taints gpu=yes:NoSchedule --name lab`
    """
    with reported():
        from cli.commands import node as work

        work.add(name, node, labels=labels, taints=taints, cpus=cpus, memory=memory, plain=plain)


@node_app.command("remove", cls=PlainCommand)
def node_remove(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node, such as node2.")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Remove it with pods that nothing makes again, or that do not go in time."),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1, max=86400, metavar="SECONDS", help="How long its pods may take to go.")
    ] = 60,
    name: Name = DEFAULT,
    plain: Plain = False,
) -> None:
    """Remove a node from a cluster: evict its pods, delete its Node, and end the machine that it is.

    The node of the control plane stays: `./nodewright down` removes the whole cluster.

    Examples:

    * `./nodewright node remove node3`

    * `./nodewright node remove node3 --force --name lab`
    """
    with reported():
        from cli.commands import node as work

        work.remove(name, node, force=force, timeout=timeout, plain=plain)


@addons_app.command("list", cls=PlainCommand)
def addons_list(name: Name = DEFAULT, output: OutputOption = Output.TEXT, as_json: Json = False) -> None:
    """List the add-ons that there are, and which of them the cluster has."""
    with reported():
        from cli.commands import addons as work

        work.show(name, as_json=wants_json(output, as_json))


_Names = Annotated[list[str], typer.Argument(metavar="ADDON", help="metrics or ingress.")]


@addons_app.command("add", cls=PlainCommand)
def addons_add(addons: _Names, name: Name = DEFAULT, plain: Plain = False) -> None:
    """Add add-ons to a cluster, and wait until they are ready. What is there already is mended.

    The program of an add-on is built first, once, which takes some minutes.

    Example: `./nodewright addons add metrics --name lab`
    """
    with reported():
        from cli.commands import addons as work

        work.add(name, addons, plain=plain)


@addons_app.command("remove", cls=PlainCommand)
def addons_remove(addons: _Names, name: Name = DEFAULT, plain: Plain = False) -> None:
    """Remove add-ons from a cluster, with everything that belongs to them.

    Example: `./nodewright addons remove ingress --name lab`
    """
    with reported():
        from cli.commands import addons as work

        work.remove(name, addons, plain=plain)
