"""The commands that test and measure: their options and their help. What a command does lies in cli.commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.choices import Bench, Maker, Suite, Tier
from cli.errors import reported
from cli.root import DEFAULT, PASS, Binaries, Name, Plain, app


@app.command(rich_help_panel="Tests", context_settings={**PASS, "help_option_names": []})
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
    name: Name = DEFAULT,
    tier: Annotated[Tier, typer.Option(help="smoke: 7 tests; dev: 28; full: all that are not serial.")] = Tier.SMOKE,
    focus: Annotated[str, typer.Option(help="Instead of a tier: a regular expression on full test names.")] = "",
    skip: Annotated[str, typer.Option(help="A regular expression of tests to leave out.")] = "",
    suite: Annotated[Suite, typer.Option(help="e2e: against a cluster; node: a kubelet alone (e2e_node.test).")] = (
        Suite.E2E
    ),
    agent: Annotated[Maker, typer.Option(help="With --suite node: whose kubelet.")] = Maker.NODEWRIGHT,
    standalone: Annotated[bool, typer.Option(help="With --suite node: a kubelet without an API server.")] = False,
    cri_proxy: Annotated[
        bool, typer.Option("--cri-proxy", help="With --suite node: the tests that make calls of the runtime fail.")
    ] = False,
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
            setup = command.setup_of(standalone=standalone, cri_proxy=cri_proxy)
            name = "node-suite" if name == DEFAULT else name
            order = command.node_order(name, str(agent), labels, focus, skip, procs, results, binaries, setup)
            show = command.list_node if dry_run else command.run_node
            show(order, plain=plain)
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
    quick: Annotated[bool, typer.Option("--quick", help="pods: fewer repetitions.")] = False,
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
            quick=quick,
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
