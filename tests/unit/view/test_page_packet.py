"""The view of a packet in a real browser: rates that are true, fields to write over, an answer that stays."""

from __future__ import annotations

import pytest

from tests.browser import Browser, needs_chromium
from tests.unit.view.world import Page, walked

pytestmark = needs_chromium
FROM_WEB_1 = "#/packet?from=shop%2Fweb-1&to=shop%2Fweb%3A80"
ARRIVED = "document.querySelector('#verdict').innerText === 'ARRIVES' && !document.querySelector('#packet-view').hidden"
# What a rule's counter comes to by readings of (seconds, packets): packets since, and rates.
COUNTED = (
    "import(new URL('counters.js', location)).then(({counted}) => arguments[0]"
    ".reduce((known, [at, packets]) => counted(known, at, packets), undefined)).then((one) => [one.more, one.rates])"
)


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([(0, 100)], [0, []]),
        ([(0, 100), (0.12, 105)], [0, []]),
        ([(0, 100), (0.12, 105), (2, 110)], [10, [5]]),
        ([(0, 100), (1, 100), (3, 104)], [4, [0, 2]]),
        ([(0, 100), (2, 110), (4, 3)], [0, []]),
        ([(0, 100), (2, 110), (4, 3), (6, 9)], [6, [3]]),
        ([(2 * at, 4 * at) for at in range(100)], [396, [2] * 30]),
    ],
    ids=["first", "too soon", "measured", "rates", "anew", "after that", "long"],
)
async def test_a_rate_is_measured_for_a_second_at_least_and_nothing_gets_less(
    browser: Browser, readings: list[tuple[float, int]], expected: object
) -> None:
    assert await browser.value(COUNTED, readings) == expected


async def test_a_field_is_written_over(here: Page, browser: Browser) -> None:
    here.answers.walk = walked(100)
    await browser.open(here.url + FROM_WEB_1)
    await browser.until(ARRIVED)
    await browser.open(f"{here.url}#/packet?from=pod%2Fshop%2Flate")
    await browser.until("document.activeElement.id === 'to'")
    await browser.press(*"db")
    assert await browser.value("['from', 'to'].map((id) => document.getElementById(id).value)") == [
        "pod/shop/late",
        "db",
    ]
    place = await browser.value("document.querySelector('#from').getBoundingClientRect().toJSON()")
    for kind in ("mousePressed", "mouseReleased"):
        await browser.devtools(
            "Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, x=place["x"] + 40, y=place["y"] + 10
        )
    await browser.until("document.activeElement.id === 'from'")
    await browser.press(*"outside")
    assert await browser.value("document.querySelector('#from').value") == "outside"
    assert await browser.log() == []


async def test_the_last_answer_stays_while_something_else_is_looked_at(here: Page, browser: Browser) -> None:
    here.answers.walk = walked(100)
    await browser.open(here.url + FROM_WEB_1)
    await browser.until(ARRIVED)
    await browser.value("document.querySelector('#walk summary').click()")
    await browser.value("window.kept = document.querySelector('#walk .leg')")
    await browser.value("document.querySelector('#to-cluster').click()")
    await browser.until("!document.querySelector('#cluster-view').hidden")
    await browser.value("document.querySelector('#to-packet').click()")
    await browser.until(ARRIVED, seconds=1)
    assert await browser.value("location.hash") == FROM_WEB_1
    asked = "performance.getEntriesByType('resource').filter((one) => one.name.includes('trace?')).length"
    assert await browser.value(asked) == 1, "it is not asked again"
    here.answers.walk = walked(112)
    await browser.until("document.querySelector('#walk').innerText.includes('[112 packets]')", seconds=6)
    await browser.value("document.querySelector('#ask button').click()")
    await browser.until(f"({asked}) === 2 && {ARRIVED}")
    assert await browser.log() == []
