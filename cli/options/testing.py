"""Commands that test and measure nodewright."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.errors import reported
from cli.options.application import PASS, command
from cli.options.choices import Bench, Maker, Suite, Tier
from cli.options.shared import DEFAULT, Binaries, Name, Plain, given_name


# Only --help: pytest clusters its short options, and -k hello would then hold a -h.
@command("Tests", settings={**PASS, "help_option_names": ["--help"]})
def test(
    context: typer.Context,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="TIER|ARGUMENT", help="Tiers, and after them arguments for pytest."),
    ] = None,
) -> None:
    """Run the tests, tier by tier, and list each tier with its result and duration.

    Without a tier every one runs, in this order:

    * `lint`: ruff's rules

    * `format`: ruff's formatting, only checked

    * `types`: mypy, strict

    * `contracts`: which package may import which (import-linter)

    * `unit`: unit and golden tests, which take some minutes, without root

    * `netns`: tests in network namespaces of this kernel; needs root

    * `cluster`: tests on whole clusters, which take many minutes; needs root

    * `smoke`: a few tests of upstream's conformance suite on a cluster; needs root

    A whole tier is shared by workers, as many as cores and memory allow; NODEWRIGHT_TEST_WORKERS=N gives their number.

    As root it first installs the Debian packages that only tests need and that are missing, Chromium (350 MB) among
    them; `./nodewright uninstall --purge` names them.

    Other arguments go to pytest, in every tier that pytest runs. A path, `-k` or `-m` without a tier starts pytest
    once, on what it selects. A path that has the name of a tier is written with `./`.

    Exit status 1 if a tier failed. Options of pytest: `./nodewright test -- --help`.

    Examples:

    * `./nodewright test`

    * `./nodewright test lint types unit`

    * `./nodewright test unit -x -k volumes`

    * `./nodewright test tests/unit/cli -q`
    """
    with reported():
        from cli.commands import test as work

        given = [*(arguments or []), *context.args]
        if given == ["-h"]:  # alone it can be no part of pytest's
            typer.echo(context.get_help())
            return
        work.run(given)


@command("Tests")
def conformance(
    context: typer.Context,
    name: Name = DEFAULT,
    tier: Annotated[
        Tier,
        typer.Option(metavar="TIER", help="smoke: 7 tests; dev: 28; full: all that are not serial."),
    ] = Tier.SMOKE,
    focus: Annotated[
        str, typer.Option(metavar="REGEX", help="Run the tests whose full names match, instead of a tier.")
    ] = "",
    skip: Annotated[str, typer.Option(metavar="REGEX", help="Leave out the tests whose full names match.")] = "",
    suite: Annotated[
        Suite | None,
        typer.Option(
            metavar="SUITE",
            help="e2e: against a cluster (the default, and with --scoreboard also node); node: a kubelet alone"
            " (e2e_node.test); network-policy-api: ClusterNetworkPolicy;"
            " cyclonus: NetworkPolicy, with its tags as --focus and --skip.",
        ),
    ] = None,
    agent: Annotated[
        Maker, typer.Option(metavar="MAKER", help="With --suite node: whose kubelet, nodewright or upstream.")
    ] = Maker.NODEWRIGHT,
    standalone: Annotated[bool, typer.Option(help="With --suite node: a kubelet without an API server.")] = False,
    cri_proxy: Annotated[
        bool,
        typer.Option(
            "--cri-proxy", help="With --suite node: run the tests that inject failures into calls to the runtime."
        ),
    ] = False,
    labels: Annotated[
        str,
        typer.Option(metavar="EXPRESSION", help="With --suite node: another ginkgo label expression than the default."),
    ] = "",
    procs: Annotated[int, typer.Option(min=1, metavar="N", help="How many test processes run in parallel.")] = 4,
    serial: Annotated[
        bool, typer.Option(help="With --tier full: also the serial and disruptive tests, one by one at the end.")
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Only list the tests that would run.")] = False,
    results: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where JUnit, JSON and the log go; by default in the cluster's directory."),
    ] = None,
    storage_driver: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="A definition of a CSI driver, as upstream's external storage tests read it; --focus"
            " 'External.Storage' runs them.",
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Run against the cluster of this kubeconfig, such as one that a node joined. Its nodes must be able to"
            " pull the suite's images; results go to ./conformance.",
        ),
    ] = None,
    scoreboard: Annotated[
        bool,
        typer.Option(
            "--scoreboard",
            help="Run everything of e2e.test and e2e_node.test that can run on this machine, with our kubelet and proxy"
            " and with upstream's, on clusters of its own. Takes many hours; run again, it goes on where it was.",
        ),
    ] = False,
    parts: Annotated[
        str,
        typer.Option(
            metavar="REGEX", help="With --scoreboard: only the parts whose names match (--dry-run lists them)."
        ),
    ] = "",
    again: Annotated[
        bool, typer.Option("--again", help="With --scoreboard: also run parts that have a result already.")
    ] = False,
    minutes: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="With --scoreboard: begin no other part after N minutes (0: no limit)."),
    ] = 0,
    at_once: Annotated[
        int,
        typer.Option(
            min=1,
            max=9,
            metavar="N",
            help="With --scoreboard: run N parts of the node suite at a time, each on a node of its own; what fails is"
            " run again alone, as always.",
        ),
    ] = 1,
    binaries: Binaries = None,
    plain: Plain = False,
) -> None:
    """Run upstream's e2e suite against a cluster; prints a table by feature, and writes JUnit and JSON.

    Exit status 1 if a test failed or none ran. With --scoreboard: if a part could not be run to its end, or a test
    passed with upstream's and not with ours; docs/scoreboard.md and docs/scoreboard.json have what came of all parts.

    Examples:

    * `./nodewright conformance`

    * `./nodewright conformance --tier full --procs 8`

    * `./nodewright conformance --focus 'should provide DNS for services'`

    * `./nodewright conformance --suite node --agent upstream --procs 8`

    * `./nodewright conformance --suite network-policy-api`

    * `./nodewright conformance --kubeconfig kind.conf --tier smoke`

    * `./nodewright conformance --scoreboard --minutes 60`
    """
    with reported():
        from cli.commands import conformance as work
        from cli.commands import conformance_scoreboard as board

        board.check(
            scoreboard=scoreboard,
            own={"--parts": parts, "--again": again, "--minutes": minutes, "--at-once": at_once > 1},
            others={
                "--tier": tier is not Tier.SMOKE,
                "--agent": agent is not Maker.NODEWRIGHT,
                "--focus": focus,
                "--skip": skip,
                "--labels": labels,
                "--standalone": standalone,
                "--cri-proxy": cri_proxy,
                "--serial": serial,
                "--storage-driver": storage_driver,
                "--kubeconfig": kubeconfig,
            },
        )
        if kubeconfig is not None:
            work.check_elsewhere(
                {"--name": bool(given_name(context)), f"--suite {suite}": suite not in (None, Suite.E2E)}
            )
        if scoreboard:
            name = given_name(context) or board.NAME
            asked = board.order_of(
                name,
                suite or "",
                parts=parts,
                again=again,
                minutes=minutes,
                procs=procs,
                at_once=at_once,
                results=results,
                binaries=binaries,
            )
            (board.list_parts if dry_run else board.run)(asked, plain=plain)
            return
        if suite is Suite.NODE:
            setup = work.setup_of(standalone=standalone, cri_proxy=cri_proxy)
            name = given_name(context) or "node-suite"
            order = work.node_order(name, str(agent), labels, focus, skip, procs, results, binaries, setup)
            show = work.list_node if dry_run else work.run_node
            show(order, plain=plain)
            return
        if suite in (Suite.NETWORK_POLICY_API, Suite.CYCLONUS):
            work.run_policies(name, str(suite), focus=focus, skip=skip, results=results, binaries=binaries, plain=plain)
            return
        work.run(
            name,
            str(tier),
            focus=focus,
            skip=skip,
            procs=procs,
            serial=serial,
            dry_run=dry_run,
            results=results,
            binaries=binaries,
            storage_driver=storage_driver,
            kubeconfig=kubeconfig,
            plain=plain,
        )


@command("Tests")
def bench(
    what: Annotated[
        Bench, typer.Argument(metavar="WHAT", help="What to measure: pods, network, services, lists or soak.")
    ],
    peer: Annotated[
        Maker | None,
        typer.Option(metavar="upstream", help="Measure upstream's kubelet, CNI plugin or kube-proxy as well."),
    ] = None,
    burst: Annotated[int, typer.Option(min=1, metavar="N", help="pods: how many are created at once.")] = 60,
    quick: Annotated[bool, typer.Option("--quick", help="pods: fewer repetitions.")] = False,
    sizes: Annotated[
        str, typer.Option(metavar="N,N", help="services, lists: numbers of Services (two endpoints each) or Pods.")
    ] = "1000,5000",
    modes: Annotated[str, typer.Option(metavar="MODE,MODE", help="services: modes of the proxy.")] = (
        "iptables,nftables"
    ),
    steps: Annotated[
        str, typer.Option(metavar="STEP,STEP", help="services: any of cold, path, change, churn.")
    ] = "cold",
    dense: Annotated[bool, typer.Option("--dense", help="services: also 5,000 with 50 endpoints each.")] = False,
    limit: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="services: how long to wait for the first sync.")
    ] = 280,
    minutes: Annotated[float, typer.Option(min=0.5, metavar="MINUTES", help="soak: how long it runs.")] = 10,
    seed: Annotated[int, typer.Option(metavar="N", help="soak: seed of the random changes.")] = 1,
    write: Annotated[bool, typer.Option("--write", help="Write the table into docs/benchmarks.md.")] = False,
    binaries: Binaries = None,
    plain: Plain = False,
) -> None:
    """Measure on this machine, in temporary clusters or network namespaces that are removed afterwards.

    Examples:

    * `./nodewright bench pods --peer upstream`

    * `./nodewright bench network --peer upstream`

    * `./nodewright bench services --peer upstream --sizes 10000 --modes nftables --steps cold,change,churn,path`
    """
    with reported():
        from cli.commands.bench import programs

        order = programs.Order(
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
        programs.run(str(what), order)
