"""Rules as text and back, the fake, the restore edge, the choice of the backend."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodelib.command import CommandError, Completed
from nodelib.errors import Invalid
from nodelib.firewall.canonical import canonical, missing_jumps
from nodelib.firewall.iptables import Iptables, RestoreError
from nodelib.firewall.objects import Chain, Family, Jump, Rule, TableChange, comment, jump, rule
from nodelib.firewall.parse import parse_tables, split_words
from nodelib.firewall.render import render, rule_text
from nodelib.firewall.variant import Seen, Variant, choose, detect
from nodelib.nft.generation import GenerationReader
from tests.fakes.fake_iptables import FakeIptables


def test_render_keeps_the_order_that_iptables_needs() -> None:
    change = TableChange(
        "nat",
        chains=(Chain("A", (rule("-s", "10.0.0.0/8", jump("B")),)), Chain("B")),
        remove_jumps=(Jump("OUTPUT", rule(jump("OLD"))),),
        add_jumps=(
            Jump("PREROUTING", rule(comment("to us"), jump("A"))),
            Jump("OUTPUT", rule(jump("A")), insert=False),
        ),
        delete=("OLD",),
    )
    assert render((TableChange("filter"), change)).splitlines() == [
        "*nat",
        ":A - [0:0]",
        ":B - [0:0]",
        ":OLD - [0:0]",
        "-A A -s 10.0.0.0/8 -j B",
        "-D OUTPUT -j OLD",
        '-I PREROUTING -m comment --comment "to us" -j A',
        "-A OUTPUT -j A",
        "-X OLD",
        "COMMIT",
    ]


def test_nothing_to_do_is_no_input() -> None:
    assert render((TableChange("nat"), TableChange("filter"))) == ""


@pytest.mark.parametrize("name", ["", "-A", "!x", "with space", "x" * 29, "a\nb", ":x"])
def test_names_that_are_no_chain_names(name: str) -> None:
    with pytest.raises(Invalid, match="not a chain name"):
        render((TableChange("nat", (Chain(name),)),))


def test_a_line_break_never_becomes_a_second_rule() -> None:
    with pytest.raises(Invalid, match="control character"):
        rule_text(rule(comment("x\n-A INPUT -j ACCEPT")))


@given(
    st.lists(
        st.text(
            st.characters(min_codepoint=32, exclude_characters="\x7f", exclude_categories=["Zl", "Zp", "Cs", "Cc"]),
            min_size=0,
            max_size=8,
        ),
        min_size=1,
        max_size=6,
    )
)
def test_words_come_back_as_they_were(words: list[str]) -> None:
    text = rule_text(Rule(tuple(words)))
    assert (
        split_words(text) == words
        or any(w.strip() != w or not w for w in words)
        or any(c.isspace() and c != " " for w in words for c in w)
    )


def test_parse_a_saved_table() -> None:
    text = """# Generated
*nat
:PREROUTING ACCEPT [12:34]
:KUBE-A - [0:0]
[5:6] -A PREROUTING -m comment --comment "a \\"quoted\\" b" -j KUBE-A
-A KUBE-A -s 10.0.0.1/32
COMMIT
"""
    content = parse_tables(text)["nat"]
    assert content.rules("PREROUTING") == (rule(comment('a "quoted" b'), jump("KUBE-A")),)
    assert list(content.chains) == ["PREROUTING", "KUBE-A"]
    assert parse_tables(text, only=())["nat"].rules("KUBE-A") == ()


@pytest.mark.parametrize("text", ["*nat\n-A NOWHERE -j X\nCOMMIT\n", "*nat\n:A - [0:0]\n-I A\nCOMMIT\n", "what\n"])
def test_text_that_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(Invalid, match="line"):
        parse_tables(text)


@pytest.mark.parametrize(
    ("given_words", "saved"),
    [
        ("-m tcp -p tcp -d 10.0.0.1 --dport 80 -j X", "-d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j X"),
        ("-p tcp --dport 80 -j X", "-p tcp -m tcp --dport 80 -j X"),
        ("-d 127.0.0.0/8 ! -s 127.0.0.0/8 -j DROP", "! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP"),
        ("-m mark ! --mark 0x00004000/0x00004000 -j RETURN", "-m mark ! --mark 0x4000/0x4000 -j RETURN"),
        ("-j MARK --or-mark 0x00004000", "-j MARK --set-xmark 0x4000/0x4000"),
        ("-j MARK --xor-mark 0x00004000", "-j MARK --set-xmark 0x4000/0x0"),
        ("-j REJECT", "-j REJECT --reject-with icmp-port-unreachable"),
        (
            "-m statistic --mode random --probability 0.3333333333 -j X",
            "-m statistic --mode random --probability 0.33333333349 -j X",
        ),
        (
            "-m recent --name N --rcheck --seconds 600 --reap -j X",
            "-m recent --rcheck --seconds 600 --reap --name N --mask 255.255.255.255 --rsource -j X",
        ),
        ("-m conntrack --ctstate ESTABLISHED,RELATED -j X", "-m conntrack --ctstate RELATED,ESTABLISHED -j X"),
        ("-s 0.0.0.0/0 -j X", "-j X"),
        ("--source 10.1.2.3/8 -j X", "-s 10.0.0.0/8 -j X"),
    ],
)
def test_canonical(given_words: str, saved: str) -> None:
    assert " ".join(canonical(Rule(tuple(given_words.split())), Family.IPV4)) == saved
    assert " ".join(canonical(Rule(tuple(saved.split())), Family.IPV4)) == saved


async def test_fake_is_transactional_and_names_the_line() -> None:
    fake = FakeIptables()
    await fake.restore((TableChange("nat", (Chain("A", (rule(jump("ACCEPT")),)),)),))
    before = fake.dump()
    with pytest.raises(RestoreError, match=r"NOWHERE.*offending line: -A B -j NOWHERE"):
        await fake.restore((TableChange("nat", (Chain("B", (rule(jump("NOWHERE")),)),)),))
    with pytest.raises(RestoreError, match="does not exist"):
        fake.load("*nat\n:B - [0:0]\n-A B -j A\n:A - [0:0]\n-X A\nCOMMIT\n")
    assert fake.dump() == before
    hop = Jump("OUTPUT", rule(jump("A")))
    await fake.restore((TableChange("nat", add_jumps=(hop,)),))
    assert await fake.has_rule("nat", hop.chain, hop.rule)
    await fake.restore((TableChange("nat", remove_jumps=(hop,), delete=("A",)),))
    assert fake.dump() == "\n"


def test_missing_jumps_see_a_rule_however_it_is_spelled() -> None:
    fake = FakeIptables()
    wanted = Jump("INPUT", rule("-m", "mark", "--mark", "0x00004000/0x00004000", jump("ACCEPT")))
    fake.load(
        "*filter\n-A INPUT -m mark --mark 0x4000/0x4000 -j ACCEPT\n-A INPUT -f -m odd -j SOMETHING\nCOMMIT\n".replace(
            "SOMETHING", "DROP"
        )
    )
    other = Jump("INPUT", rule(jump("DROP")))
    assert missing_jumps(fake.content()["filter"], (wanted, other), Family.IPV4) == (other,)


class Runner:
    """Answers command lines from a table of (part of the command, exit status, stdout, stderr)."""

    def __init__(self, *answers: tuple[str, int, str, str]) -> None:
        self.answers = answers
        self.calls: list[tuple[str, bytes | None]] = []

    async def __call__(
        self, argv: Any, *, stdin: bytes | None = None, timeout: float = 0, check: bool = True
    ) -> Completed:
        line = " ".join(argv)
        self.calls.append((line, stdin))
        for part, code, out, err in self.answers:
            if part in line:
                if check and code:
                    raise CommandError(argv, code, err.encode())
                return Completed(tuple(argv), code, out.encode(), err.encode())
        return Completed(tuple(argv), 0, b"", b"")


async def test_restore_error_names_the_offending_line() -> None:
    said = (
        "iptables-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (No such file or directory): rule in chain A"
    )
    tables = Iptables(Family.IPV4, run=Runner(("restore", 4, "", said)))
    with pytest.raises(RestoreError) as caught:
        await tables.restore((TableChange("nat", (Chain("A", (rule("-m", "nope", jump("X")),)),)),))
    assert caught.value.line == "-A A -m nope -j X"
    assert "RULE_APPEND failed" in str(caught.value)


async def test_one_input_and_the_tools_of_the_family() -> None:
    runner = Runner()
    tables = Iptables(Family.IPV6, Variant("nft"), run=runner)
    await tables.restore((TableChange("nat", (Chain("A"),)),))
    assert runner.calls == [
        ("ip6tables-nft-restore -w 5 --noflush --counters", b"*nat\n:A - [0:0]\nCOMMIT\n"),
    ]
    await tables.restore(())
    assert len(runner.calls) == 1


async def test_a_rule_is_asked_for_by_its_words() -> None:
    runner = Runner((" -C ", 1, "", "Bad rule"))
    assert not await Iptables(Family.IPV4, run=runner).has_rule("nat", "OUTPUT", rule(jump("A")))
    assert [line.split(" nat ")[1] for line, _ in runner.calls] == ["-C OUTPUT -j A"]
    assert await Iptables(Family.IPV4, run=Runner()).has_rule("nat", "OUTPUT", rule(jump("A")))


@pytest.mark.parametrize(
    ("nft", "legacy", "variant"),
    [
        (Seen(False, 0), Seen(False, 0), "nft"),
        (Seen(False, 3), Seen(False, 9), "legacy"),
        (Seen(False, 9), Seen(False, 3), "nft"),
        (Seen(True, 0), Seen(False, 99), "nft"),
        (Seen(False, 99), Seen(True, 0), "legacy"),
    ],
)
def test_the_backend_that_others_use_is_chosen(nft: Seen, legacy: Seen, variant: str) -> None:
    assert choose(nft, legacy).name == variant


async def test_detection_reads_the_hints() -> None:
    hint = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n"
    everything = Runner(("iptables-legacy-save", 0, hint, ""), ("nft-save", 0, "-A INPUT -j X\n", ""))
    found = await detect(run=everything, which=lambda name: f"/sbin/{name}")
    assert (found.name, found.restore(Family.IPV6)) == ("legacy", "ip6tables-legacy-restore")
    alone = await detect(run=everything, which=lambda name: None if "legacy" in name else name)
    assert (alone.name, alone.save(Family.IPV4)) == ("", "iptables-save")


def test_generation_of_the_ruleset() -> None:
    number = GenerationReader()()
    assert number is None or number >= 0
