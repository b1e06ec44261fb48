"""Which program measures what. Each is imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Order:
    """The options of the command; each program takes those that it knows."""

    peer: bool
    burst: int
    quick: bool
    sizes: str
    modes: str
    steps: str
    dense: bool
    limit: float
    minutes: float
    seed: int
    write: bool
    binaries: Path | None
    plain: bool


def run(what: str, order: Order) -> None:
    """Run one of PROGRAMS. Raises SystemExit as the program does."""
    PROGRAMS[what](order)


def _pods(order: Order) -> None:
    from cli.bench.pods import Plan
    from cli.commands.bench import pods

    plan = replace(Plan.quick() if order.quick else Plan(), burst=order.burst)
    pods.run(peer=order.peer, plan=plan, write=order.write, plain=order.plain, binaries=order.binaries)


def _network(order: Order) -> None:
    from cli.bench.network import Plan
    from cli.commands.bench import network

    network.run(peer=order.peer, plan=Plan(), write=order.write, plain=order.plain)


def _services(order: Order) -> None:
    from cli.bench.services.measure import Effort
    from cli.commands.bench import services

    wanted = services.request(
        peer=order.peer,
        modes=order.modes,
        sizes=order.sizes,
        steps=order.steps,
        dense=order.dense,
        effort=Effort(cold_limit=order.limit),
    )
    services.run(wanted, write=order.write, plain=order.plain, binaries=order.binaries)


def _lists(order: Order) -> None:
    from cli.commands.bench import lists, services

    lists.run(sizes=services.numbers(order.sizes), plain=order.plain, binaries=order.binaries)


def _soak(order: Order) -> None:
    from cli.commands.bench import soak

    differed = soak.run(
        modes=order.modes,
        services=1000,
        minutes=order.minutes,
        seed=order.seed,
        plain=order.plain,
        binaries=order.binaries,
    )
    raise SystemExit(1 if differed else 0)


PROGRAMS: dict[str, Callable[[Order], None]] = {
    "pods": _pods,
    "network": _network,
    "services": _services,
    "lists": _lists,
    "soak": _soak,
}
