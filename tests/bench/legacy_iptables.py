"""iptables-legacy-restore beside python-iptables (libiptc in the process): the first sync, and one Service changed.

`unshare -n PYTHON -m tests.bench.legacy_iptables 1000 10000` with a PYTHON whose environment has python-iptables, which
is no part of the project's. The rules of a Service are upstream's: a jump from KUBE-SERVICES, a choice by statistic
between two endpoints, and for each of them the mark for hairpins and the DNAT.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import iptc  # type: ignore[import-not-found]

ENDPOINTS = 2


def address(first: int, number: int) -> str:
    return f"{first}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def chains(service: int) -> list[str]:
    return [f"KUBE-SVC-{service:016d}", *(f"KUBE-SEP-{service:014d}{at:02d}" for at in range(ENDPOINTS))]


def rules(service: int, port: int) -> Iterator[tuple[str, list[str]]]:
    """(chain, words) of the service's own chains; `port` of its endpoints."""
    own, *endpoints = chains(service)
    for at, chain in enumerate(endpoints):
        choice = ["-m", "statistic", "--mode", "random", "--probability", "0.5"] if at == 0 else []
        yield own, [*choice, "-j", chain]
        where = address(10, service * ENDPOINTS + at)
        yield chain, ["-s", f"{where}/32", "-j", "KUBE-MARK-MASQ"]
        yield chain, ["-p", "tcp", "-m", "tcp", "-j", "DNAT", "--to-destination", f"{where}:{port}"]


def jump(service: int) -> list[str]:
    words = ["-d", f"{address(11, service)}/32", "-p", "tcp", "-m", "tcp", "--dport", "80"]
    return [*words, "-j", chains(service)[0]]


def text(services: range, port: int, *, whole: bool) -> bytes:
    """An input of iptables-restore: everything, or only the chains of these services."""
    lines = ["*nat", *([":KUBE-SERVICES - [0:0]", ":KUBE-MARK-MASQ - [0:0]"] if whole else [])]
    lines += [f":{chain} - [0:0]" for service in services for chain in chains(service)]
    lines += ["-A KUBE-SERVICES " + " ".join(jump(service)) for service in services if whole]
    lines += [f"-A {chain} " + " ".join(words) for service in services for chain, words in rules(service, port)]
    return "\n".join([*lines, "COMMIT", ""]).encode()


def restore(data: bytes, *options: str) -> None:
    subprocess.run(["iptables-legacy-restore", "-w", *options], input=data, check=True)


def as_rule(words: list[str]) -> object:
    rule, given = iptc.Rule(), iter(words)
    match = target = None
    for word in given:
        match word, next(given):
            case "-s", value:
                rule.src = value
            case "-d", value:
                rule.dst = value
            case "-p", value:
                rule.protocol = value
            case "-m", value:
                match = rule.create_match(value)
            case "-j", value:
                target = rule.create_target(value)
            case option, value:
                setattr(target or match, option[2:].replace("-", "_"), value)
    return rule


def build(services: range, port: int) -> None:
    """The same with python-iptables, committed once."""
    table = iptc.Table(iptc.Table.NAT)
    table.autocommit = False
    table.refresh()
    for name in ("KUBE-SERVICES", "KUBE-MARK-MASQ", *(chain for service in services for chain in chains(service))):
        table.create_chain(name)
    for service in services:
        iptc.Chain(table, "KUBE-SERVICES").append_rule(as_rule(jump(service)))
        for chain, words in rules(service, port):
            iptc.Chain(table, chain).append_rule(as_rule(words))
    table.commit()
    table.close()


def change(service: int, port: int) -> None:
    table = iptc.Table(iptc.Table.NAT)
    table.autocommit = False
    table.refresh()
    for chain in chains(service):
        iptc.Chain(table, chain).flush()
    for chain, words in rules(service, port):
        iptc.Chain(table, chain).append_rule(as_rule(words))
    table.commit()
    table.close()


def seconds(what: Callable[[], None]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def saved() -> list[str]:
    found = subprocess.run(["iptables-legacy-save", "-t", "nat"], capture_output=True, check=True, text=True).stdout
    return sorted(line for line in found.splitlines() if line.startswith("-A"))


def measure(count: int) -> str:
    """A row of the table."""
    services = range(count)
    whole, one = text(services, 8080, whole=True), text(range(7, 8), 9090, whole=False)
    by_tool = seconds(lambda: restore(whole))
    expected = saved()
    tool_change = seconds(lambda: restore(one, "--noflush"))
    restore(b"*nat\nCOMMIT\n")
    by_library = seconds(lambda: build(services, 8080))
    assert saved() == expected, "both make the same rules"
    library_change = seconds(lambda: change(7, 9090))
    restore(b"*nat\nCOMMIT\n")
    return f"| {count:,} | {by_tool:.2f} s | {by_library:.2f} s | {tool_change:.3f} s | {library_change:.3f} s |"


def main() -> None:
    print("| Services x 2 | restore | python-iptables | one changed: restore | one changed: python-iptables |")
    print("| --- | --- | --- | --- | --- |")
    for count in map(int, sys.argv[1:] or ("1000",)):
        print(measure(count))


if __name__ == "__main__":
    main()
