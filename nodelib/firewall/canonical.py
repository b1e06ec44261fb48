"""Rules in the form in which iptables-save prints them, so that they can be compared. Pure.

The kernel stores rules decoded. iptables-save prints addresses, interfaces and the protocol first, then the matches in
their order, then the target, all with their defaults written out. It knows what this project writes: comment,
conntrack, mark, addrtype, tcp, udp, sctp, recent, statistic, nfacct, and the targets MARK, MASQUERADE, DNAT and REJECT.
tests/netns compares it with the real iptables-save.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

from nodelib.firewall.objects import Family, Jump, Rule, TableContent, Words, fingerprint

_HEAD = ("-s", "-d", "-i", "-o", "-p")
_LONG = {"--source": "-s", "--src": "-s", "--destination": "-d", "--dst": "-d", "--protocol": "-p", "--jump": "-j"}
_FLAGS = frozenset(
    {"-f", "--reap", "--rcheck", "--set", "--update", "--remove", "--rsource", "--rdest", "--random-fully"}
)
_ANY = {"0.0.0.0/0", "::/0"}
_STATES = ("INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED", "SNAT", "DNAT")
_REJECT = {Family.IPV4: "icmp-port-unreachable", Family.IPV6: "icmp6-port-unreachable"}
_HOST_MASK = {Family.IPV4: "255.255.255.255", Family.IPV6: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}
_RECENT_ORDER = ("--set", "--rcheck", "--update", "--remove", "--seconds", "--reap", "--hitcount", "--name", "--mask")

Option = tuple[bool, str, str | None]  # negated, name, value


def canonical(rule: Rule, family: Family) -> Words:
    """The words of `rule` as iptables-save prints them after the chain's name."""
    head: dict[str, Option] = {}
    matches: list[tuple[str, list[Option]]] = []
    target: list[str] = []
    words = rule.words
    index, negated = 0, False
    while index < len(words):
        word = _LONG.get(words[index], words[index])
        if word == "!":
            negated, index = True, index + 1
            continue
        if word in ("-j", "-g"):
            target = [word, *words[index + 1 :]]
            break
        value = None if word in _FLAGS or index + 1 >= len(words) else words[index + 1]
        if word == "-m":
            matches.append((value or "", []))
        elif word in _HEAD:
            head[word] = (negated, word, value)
        else:
            if not matches:  # `-p tcp --dport 80` means `-p tcp -m tcp --dport 80`
                matches.append(((head["-p"][2] or "") if "-p" in head else "", []))
            matches[-1][1].append((negated, word, value))
        index += 1 if value is None else 2
        negated = False
    return _assembled(head, matches, target, family)


def chain_fingerprint(rules: Collection[Rule], family: Family) -> int:
    """The fingerprint that these rules will have when they are read from the kernel."""
    return fingerprint([canonical(rule, family) for rule in rules])


def missing_jumps(content: TableContent, jumps: Collection[Jump], family: Family) -> tuple[Jump, ...]:
    """Those of `jumps` that `content` does not have; they go into the same restore, instead of -C || -I for each."""
    return tuple([jump for jump in jumps if not _is_present(content, jump, family)])


def present_jumps(content: TableContent, jumps: Collection[Jump], family: Family) -> tuple[Jump, ...]:
    """Those of `jumps` that `content` has."""
    return tuple([jump for jump in jumps if _is_present(content, jump, family)])


def _is_present(content: TableContent, jump: Jump, family: Family) -> bool:
    target, wanted = jump.rule.target, canonical(jump.rule, family)
    there = [rule for rule in content.rules(jump.chain) if rule.target == target]
    return any(canonical(rule, family) == wanted for rule in there)


def _assembled(
    head: dict[str, Option], matches: list[tuple[str, list[Option]]], target: list[str], family: Family
) -> Words:
    out: list[str] = []
    for name in _HEAD:
        if name in head:
            negated, _, value = head[name]
            text = _address(value or "") if name in ("-s", "-d") else value or ""
            if text not in _ANY:
                out.extend(_option((negated, name, text)))
    for module, options in matches:
        out.extend(("-m", module))
        for option in _match_options(module, options, family):
            out.extend(_option(option))
    out.extend(_target(target, family))
    return tuple(out)


def _option(option: Option) -> Words:
    negated, name, value = option
    words = (name,) if value is None else (name, value)
    return ("!", *words) if negated else words


def _match_options(module: str, options: list[Option], family: Family) -> list[Option]:
    if module == "mark":
        return [(negated, name, _mark(value or "")) for negated, name, value in options]
    if module == "conntrack":
        return [(negated, name, _states(value or "")) for negated, name, value in options]
    if module == "statistic":
        return [(negated, name, _probability(name, value)) for negated, name, value in options]
    if module == "recent":
        full = {name: (negated, name, value) for negated, name, value in options}
        full.setdefault("--mask", (False, "--mask", _HOST_MASK[family]))
        return [full[name] for name in _RECENT_ORDER if name in full] + [(False, "--rsource", None)]
    return options


def _target(words: list[str], family: Family) -> list[str]:
    if len(words) == 4 and words[1] == "MARK" and words[2] in ("--or-mark", "--xor-mark"):
        mask = words[3] if words[2] == "--or-mark" else "0x0"
        return ["-j", "MARK", "--set-xmark", f"{_mark(words[3])}/{_mark(mask)}"]
    if words == ["-j", "REJECT"]:
        return ["-j", "REJECT", "--reject-with", _REJECT[family]]
    return words


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        return text


def _mark(text: str) -> str:
    parts = text.split("/")
    try:
        return "/".join(hex(int(part, 0)) for part in parts)
    except ValueError:
        return text


def _states(text: str) -> str:
    given = set(text.split(","))
    return ",".join([state for state in _STATES if state in given]) or text


def _probability(name: str, value: str | None) -> str | None:
    if name != "--probability" or value is None:
        return value
    # xt_statistic stores 31 bits (libxt_statistic.c: 0x80000000 * probability, rounded).
    return f"{round(0x80000000 * float(value)) / 0x80000000:.11f}"
