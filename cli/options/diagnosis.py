"""Commands that look at a cluster and explain what they see."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cli.errors import reported
from cli.options.application import command
from cli.options.choices import Output
from cli.options.shared import DEFAULT, Binaries, Json, Name, Namespace, OutputOption, Plain, Watch, wants_json

_NO_ANSWER = 2  # exit status of `trace` when it cannot say whether a packet arrives, as click has it for wrong usage


@command("Diagnosis")
def status(
    name: Name = DEFAULT,
    watch: Watch = False,
    plain: Plain = False,
    output: OutputOption = Output.TEXT,
    as_json: Json = False,
) -> None:
    """Show the state of a cluster: nodes, daemons, pods, proxies. Works while the API server is down too.

    Exit status 0 when the API server answers, every daemon runs and every node is Ready; otherwise 1.

    With --watch it goes on until Ctrl-C, which ends it with status 0: a terminal is redrawn in place, a pipe or a file
    gets a line for each change, and -o json a document a line (NDJSON).

    Examples:

    * `./nodewright status`

    * `./nodewright status --watch`
    """
    with reported():
        shown = wants_json(output, as_json)
        if watch:
            from cli.commands import status_watch

            status_watch.run(name, as_json=shown, plain=plain)
            return
        from cli.commands import status as work

        work.run(name, as_json=shown)


@command("Diagnosis")
def why(
    about: Annotated[
        str,
        typer.Argument(
            metavar="[KIND/]NAME",
            help="A pod, or deploy/web, sts/x, ds/x, rs/x, job/x, cronjob/x, pvc/x, svc/x, ing/x, node/x. "
            "By default everything that is not well.",
        ),
    ] = "",
    of_kind: Annotated[str, typer.Argument(metavar="", hidden=True, help="The name, if a kind comes before it.")] = "",
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Namespace of the name (default: default), or the only one that the list shows.",
        ),
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List every namespace, as it does without -n.")
    ] = False,
    watch: Watch = False,
    plain: Plain = False,
    name: Name = DEFAULT,
    output: OutputOption = Output.TEXT,
    kubeconfig: Annotated[
        str,
        typer.Option(metavar="FILE", help="On a machine without a cluster of up: the kubeconfig to reach the API."),
    ] = "",
    waterfall: Annotated[
        bool, typer.Option("--waterfall", help="Draw how the pod started, step by step, by its node's own record.")
    ] = False,
    otlp: Annotated[
        str,
        typer.Option(metavar="FILE", help="Write the pod's trace as a line of OTLP JSON for a collector; - is stdout."),
    ] = "",
    as_json: Json = False,
) -> None:
    """Explain why a pod is not running, not ready or not gone: what it waits for, the error, and what to do.

    Of a workload it tells what keeps its pods from being made, and what those that exist wait for; of a claim why it
    is not bound, of a Service or Ingress why it leads nowhere. The list also has Nodes that are missing or not ready.

    The answer about a pod comes from its own node: every step with its duration, the next retry, why a container
    ended, the last lines of its log. It works while the API server is down too, and for a pod that has no node yet.

    Exit status 0: all of it is well; 1: something is not, or cannot be asked; 2: wrong usage.

    With --watch it goes on until Ctrl-C, which ends it with status 0: a terminal is redrawn in place, a pipe or a file
    gets what is new (of one pod also each step of its start), and -o json a document a line (NDJSON).

    Examples:

    * `./nodewright why`

    * `./nodewright why web-0 -n shop`

    * `./nodewright why shop/web-0 --output json`

    * `./nodewright why deploy/web`

    * `./nodewright why web-0 --waterfall`

    * `./nodewright why web-0 --otlp web-0.jsonl`

    * `./nodewright why shop/web-0 --watch`
    """
    if watch and (waterfall or otlp):
        raise typer.BadParameter("--waterfall and --otlp show one moment, --watch goes on: leave one of them out.")
    with reported():
        chosen, shown = None if all_namespaces else namespace, wants_json(output, as_json)
        about = f"{about} {of_kind}".strip()
        if watch:
            from cli.commands import why_watch

            why_watch.run(name, about, chosen, as_json=shown, kubeconfig=kubeconfig, plain=plain)
            return
        from cli.commands import why as work

        work.run(name, about, chosen, as_json=shown, kubeconfig=kubeconfig, waterfall=waterfall, otlp=otlp)


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
    """Check this machine, a cluster's nodes and its pods, with a fix for each problem.

    Exit status 0 when nothing is broken (there may be warnings, such as a pod that waits); 1 when `up` cannot work here
    (fatal), or something of the cluster is broken (error): the API server, a Node, a route; 2 for wrong usage.

    With --cis every control for worker nodes is judged on the nodes of the cluster, and on this machine if a kubelet
    runs here (joined, installed, or upstream's). Exit status 1 when one fails.

    Examples:

    * `./nodewright doctor`

    * `./nodewright doctor --cis -o json`
    """
    with reported():
        as_json = wants_json(output, as_json)
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
    as_json: Json = False,
) -> None:
    """Show what keeps each image on a node, what garbage collection removes next, and what the last one freed.

    Exit status 1 when no node answers.

    Examples:

    * `./nodewright images node1`

    * `./nodewright images node1 --free 5Gi`
    """
    with reported():
        from cli.commands import images as work

        work.run(name, node, free, as_json=wants_json(output, as_json))


@command("Diagnosis")
def trace(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="A pod, deploy/NAME, a node, an address, or the word outside.")
    ],
    to: Annotated[str, typer.Argument(metavar="TO[:PORT]", help="A Service, a pod, a node, an address or a DNS name.")],
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
    seconds: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How long --live waits.")] = 30.0,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show every rule that matched, with its counter.")] = False,
    output: OutputOption = Output.TEXT,
    as_json: Json = False,
) -> None:
    """Tell whether a packet arrives, according to the rules, routes and listeners of the nodes, and if not, why.

    Exit status 0 when it arrives, on one possible path at least; 1 when it does not; 2 when nobody can say: wrong
    usage, a name that does not exist, no answer from the API server.

    Examples:

    * `./nodewright trace shop/web-0 kube-system/kube-dns:53 --protocol udp`

    * `./nodewright trace outside demo-nodeport`

    * `./nodewright trace deploy/demo web.shop.svc.cluster.local`

    * `./nodewright trace node1 10.96.0.1:443 --live`
    """
    with reported(_NO_ANSWER):
        from cli.commands import trace as work

        wait = seconds if live else 0
        shown = "json" if wants_json(output, as_json) else "verbose" if verbose else "text"
        work.run(name, source, to, namespace=namespace, protocol=protocol, outside=outside, output=shown, live=wait)


@command("Diagnosis")
def service(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="NAME or NAMESPACE/NAME.")],
    name: Name = DEFAULT,
    namespace: Namespace = "default",
    node: Annotated[str, typer.Option(metavar="NODE", help="Show only what this node has.")] = "",
    rules: Annotated[
        bool, typer.Option("--rules", help="Show its rules in the nodes' kernels, with counters.")
    ] = False,
    output: OutputOption = Output.TEXT,
    as_json: Json = False,
) -> None:
    """Tell whether the nodes serve a Service, and if not, why and what to do: its endpoints, who listens, connections.

    Exit status 0 when there is such a Service, whatever is wrong with it.

    Examples:

    * `./nodewright service demo`

    * `./nodewright service demo --rules`

    * `./nodewright service kube-system/kube-dns --node node1`
    """
    with reported():
        from cli.commands import service as work

        shown = wants_json(output, as_json)
        work.run(name, service, namespace=namespace, node=node, as_json=shown, rules=rules)


@command("Diagnosis")
def view(
    name: Name = DEFAULT,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="The port on 127.0.0.1; by default one that is free.")
    ] = 0,
    kubeconfig: Annotated[
        str,
        typer.Option(metavar="FILE", help="Show the cluster of this kubeconfig; by default that of --name."),
    ] = "",
    plain: Plain = False,  # as everything that it prints is: scripts may give it to whatever goes on
) -> None:
    """Serve a live page of the cluster: its pods and Services, why a pod waits, the way of a packet.

    It only reads, with the rights of the kubeconfig, and follows changes by watches. The page is on loopback, at an
    address with a token; through SSH: `ssh -L 8080:127.0.0.1:PORT`. It runs until Ctrl-C.

    Examples:

    * `./nodewright view`

    * `./nodewright view --port 8080`
    """
    with reported():
        from cli.commands.view import serve as work

        work.run(name, kubeconfig=kubeconfig, port=port)


@command("Diagnosis")
def version(output: OutputOption = Output.TEXT, as_json: Json = False) -> None:
    """Show the versions of nodewright (with its commit in a checkout), Kubernetes, containerd, CoreDNS and Python."""
    from cli import versions

    if wants_json(output, as_json):
        print(json.dumps(versions.document(), indent=1))
    else:
        print("\n".join(versions.lines()))
