"""Commands that look at a cluster and explain what they see."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors import reported
from cli.options.application import command
from cli.options.choices import Output
from cli.options.shared import DEFAULT, Binaries, Json, Name, Namespace

OutputOption = Annotated[
    Output, typer.Option("--output", "-o", metavar="FORMAT", help="How to show it: text, or json for scripts.")
]


@command("Diagnosis")
def status(name: Name = DEFAULT, as_json: Json = False) -> None:
    """Show the state of a cluster: nodes, daemons, pods, proxies. Works while the API server is down too."""
    with reported():
        from cli.commands import status as work

        work.run(name, as_json=as_json)


@command("Diagnosis")
def why(
    pod: Annotated[
        str,
        typer.Argument(metavar="POD", help="POD or NAMESPACE/POD; by default every pod that has a problem."),
    ] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", metavar="NAME", help="The pod's namespace.")] = (
        "default"
    ),
    name: Name = DEFAULT,
    output: OutputOption = Output.TEXT,
    kubeconfig: Annotated[
        str,
        typer.Option(metavar="FILE", help="On a machine without a cluster of up: the kubeconfig to reach the API."),
    ] = "",
) -> None:
    """Explain why a pod is not running, not ready or not gone: what it waits for, the error, and what to do.

    The answer comes from the pod's own node: every step with its duration, the next retry, why a container ended.
    It works while the API server is down too, and for a pod that has no node yet.

    Examples:

    * `./nodewright why`

    * `./nodewright why web-0 -n shop`

    * `./nodewright why shop/web-0 --output json`
    """
    with reported():
        from cli.commands import why as work

        work.run(name, pod, namespace, as_json=output is Output.JSON, kubeconfig=kubeconfig)


@command("Diagnosis")
def doctor(
    name: Name = DEFAULT,
    cis: Annotated[
        bool,
        typer.Option("--cis", help="Judge the nodes' daemons by the CIS Kubernetes Benchmark instead (4.1 to 4.3)."),
    ] = False,
    kubeconfig: Annotated[
        str,
        typer.Option(metavar="FILE", help="With --cis: how to ask the API server for a kubelet's configuration."),
    ] = "",
    output: OutputOption = Output.TEXT,
    as_json: Json = False,
    binaries: Binaries = None,
) -> None:
    """Check this machine and a cluster's nodes, with a fix for each problem. Exit status 1 if `up` cannot work.

    With --cis every control for worker nodes is judged on the nodes of the cluster, and on this machine if a kubelet
    runs here (joined, installed, or upstream's). Exit status 1 when one fails.

    Examples:

    * `./nodewright doctor`

    * `./nodewright doctor --cis -o json`
    """
    with reported():
        as_json = as_json or output is Output.JSON
        if cis:
            from cli.commands import doctor_cis

            doctor_cis.run(name, as_json=as_json, kubeconfig=kubeconfig)
            return
        from cli.commands import doctor as work

        work.run(name, as_json=as_json, binaries=binaries)


@command("Diagnosis")
def images(
    node: Annotated[str, typer.Argument(metavar="NODE", help="By default every node that answers.")] = "",
    free: Annotated[
        str,
        typer.Option(metavar="SIZE", help="A dry run: show what would be removed to free this much, such as 5Gi."),
    ] = "",
    name: Name = DEFAULT,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what keeps each image on a node, what garbage collection removes next, and what the last one freed.

    Examples:

    * `./nodewright images node1`

    * `./nodewright images node1 --free 5Gi`
    """
    with reported():
        from cli.commands import images as work

        work.run(name, node, free, as_json=output is Output.JSON)


@command("Diagnosis")
def trace(
    come: Annotated[str, typer.Argument(metavar="FROM", help="A pod, a node, an address, or the word outside.")],
    to: Annotated[str, typer.Argument(metavar="TO[:PORT]", help="A Service, a pod or an address.")],
    name: Name = DEFAULT,
    namespace: Namespace = "default",
    protocol: Annotated[
        str, typer.Option(metavar="PROTOCOL", help="tcp or udp; by default the protocol of the Service's port.")
    ] = "",
    outside: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address that outside stands for; by default this machine's.")
    ] = "",
    live: Annotated[
        bool, typer.Option("--live", help="Follow the next real connection instead of reading the rules.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How long --live waits.")] = 30,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show every rule that matched, with its counter.")] = False,
    as_json: Json = False,
) -> None:
    """Tell whether a packet arrives, according to the rules and routes in the nodes' kernels, and if not, why.

    Exit status 1 when it cannot arrive.

    Examples:

    * `./nodewright trace shop/web-0 kube-system/kube-dns:53 --protocol udp`

    * `./nodewright trace outside demo`

    * `./nodewright trace node1 10.96.0.1:443 --live`
    """
    with reported():
        from cli.commands import trace as work

        wait = seconds if live else 0
        output = "json" if as_json else "verbose" if verbose else "text"
        work.run(name, come, to, namespace=namespace, protocol=protocol, outside=outside, output=output, live=wait)


@command("Diagnosis")
def service(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="NAME or NAMESPACE/NAME.")],
    name: Name = DEFAULT,
    namespace: Namespace = "default",
    node: Annotated[str, typer.Option(metavar="NODE", help="Show only what this node has.")] = "",
    as_json: Json = False,
) -> None:
    """Show how the nodes serve a Service: endpoints, why one is left out, rules with counters, connections.

    Examples:

    * `./nodewright service demo`

    * `./nodewright service kube-system/kube-dns --node node1`
    """
    with reported():
        from cli.commands import service as work

        work.run(name, service, namespace=namespace, node=node, as_json=as_json)


@command("Diagnosis")
def version() -> None:
    """Show the versions of nodewright (with its commit in a checkout), Kubernetes and Python."""
    from cli import versions

    print("\n".join(versions.lines()))
