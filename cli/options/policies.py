"""Commands about network policies: what they refused, and what they allow."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors import reported
from cli.options.application import PlainCommand, PlainGroup, app, command
from cli.options.choices import Output
from cli.options.shared import DEFAULT, Json, Name, OutputOption, wants_json

policy_app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="List and explain network policies.",
)
app.add_typer(policy_app, name="policy", rich_help_panel="Diagnosis")
Kubeconfig = Annotated[
    str, typer.Option(metavar="FILE", help="On a machine without a cluster of up: the kubeconfig to reach the API.")
]


@command("Diagnosis")
def drops(
    pod: Annotated[
        str,
        typer.Argument(
            metavar="[POD]",
            help="Only packets from or to it: NAME, or NAMESPACE/NAME; also of pods whose names begin with NAME-.",
        ),
    ] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Only packets from or to its pods.")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on, and print each refusal as it happens.")
    ] = False,
    name: Name = DEFAULT,
    output: OutputOption = Output.TEXT,
    as_json: Json = False,
) -> None:
    """Show which packets network policies refused: from whom, to whom, by which policies, and what would allow them.

    The nodes remember the latest 2,048 flows, at most 64 of each pod, since their policy daemons started. Packets
    alike are one line. Of a flood only a sample is reported; the daemons' metrics count every packet.

    Exit status 1 when a node cannot tell: it does not run, its kernel cannot report, another implementation enforces.

    Examples:

    * `./nodewright drops`

    * `./nodewright drops shop/web-0 --follow`

    * `./nodewright drops -n shop -o json`
    """
    with reported():
        from cli.commands import drops as work

        work.run(name, pod, namespace=namespace, follow=follow, as_json=wants_json(output, as_json))


@policy_app.command("explain", cls=PlainCommand)
def explain(
    pod: Annotated[
        str,
        typer.Argument(
            metavar="NAMESPACE/POD",
            help="The pod, or only its name; or a workload such as deploy/NAME, for one of its pods.",
        ),
    ],
    name: Name = DEFAULT,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of a name that is given without one.")
    ] = "default",
    kubeconfig: Kubeconfig = "",
    output: OutputOption = Output.TEXT,
    as_json: Json = False,
) -> None:
    """Show who may reach a pod and whom it may reach, by the network policies that the API server has.

    For each direction: whether policies isolate the pod and which, then their rules, each with its peers in words, the
    pods that they are now, and the ports.

    Examples:

    * `./nodewright policy explain shop/web-0`

    * `./nodewright policy explain deploy/web -n shop -o json`
    """
    with reported():
        from cli.commands import policy_explain as work

        work.run(name, pod, namespace=namespace, kubeconfig=kubeconfig, as_json=wants_json(output, as_json))


@policy_app.command("list", cls=PlainCommand)
def list_policies(
    name: Name = DEFAULT,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Only NetworkPolicies of this namespace.")
    ] = "",
    kubeconfig: Kubeconfig = "",
    output: OutputOption = Output.TEXT,
    as_json: Json = False,
) -> None:
    """List the network policies in the order in which they decide, each with the pods that it selects now.

    One that selects no pod does nothing: often its podSelector has a label that no pod has.

    Examples:

    * `./nodewright policy list`

    * `./nodewright policy list -n shop -o json`
    """
    with reported():
        from cli.commands import policy_list as work

        work.run(name, namespace=namespace, kubeconfig=kubeconfig, as_json=wants_json(output, as_json))
