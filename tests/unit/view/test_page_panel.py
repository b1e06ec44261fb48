"""The panel about a pod in a real browser: what ages in it, what it says of drops, its commands, how it is closed."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tests.browser import Browser, needs_chromium
from tests.unit.view.world import SCRIPT, Page, put, waiting
from view.model.network import Refused

pytestmark = needs_chromium


async def test_ages_go_on_and_drops_that_ended_claim_nothing(here: Page, browser: Browser) -> None:
    await browser.open(f"{here.url}#/pod/shop/web-1")
    shown = "document.querySelector('#detail').innerText"
    await browser.until(f"{shown}.includes('It is well')")
    assert here.answers.taker is not None
    now = time.time()
    recent = Refused("node1", now - 27, 3, "ingress", "shop/web-2", "shop/web-1", "80/TCP", "shop/deny", "a label")
    old = replace(recent, last=now - 200, port="81/TCP", count=7)
    over = replace(recent, last=now - 400, port="82/TCP")
    here.answers.taker.take([over, old, recent])
    await browser.until(f"{shown}.includes('3 packets dropped, the last 27 s ago')")
    text = await browser.value(shown)
    assert "7 packets dropped, none since" in text and "82/TCP" not in text and text.count("would be allowed") == 1
    assert await browser.value("document.querySelectorAll('[data-part=refused] .bad').length") == 1
    await browser.value("window.kept = document.querySelector('[data-part=refused] strong')")
    await browser.until(f"{shown}.includes('the last 28 s ago')", seconds=3)
    assert await browser.value("window.kept.isConnected"), "only the age is written anew"
    await browser.until(
        f"{shown}.includes('3 packets dropped, none since') && {shown}.includes('It is well')", seconds=5
    )
    assert "would be allowed" not in await browser.value(shown)
    assert await browser.log() == []


async def test_how_old_drops_are_said(browser: Browser) -> None:
    ages = [0, 29, 31, 299, 301]
    found = "import(new URL('drops.js', location)).then((one) => arguments[0].map((at) => one.stage(1000 - at, 1000)))"
    assert await browser.value(found, ages) == ["on", "on", "past", "past", "gone"]
    assert await browser.value(found, [1000]) == ["gone"], "nobody knows when"


async def test_what_a_pod_waits_for_ages_in_the_page(here: Page, browser: Browser) -> None:
    late = waiting("late", "node2")
    late["status"]["conditions"][0] |= {"status": "False", "reason": "Unschedulable"}
    late["spec"].pop("nodeName")
    since = datetime.now(UTC) - timedelta(seconds=47)
    late["status"]["conditions"][0]["lastTransitionTime"] = since.strftime("%Y-%m-%dT%H:%M:%SZ")
    late["status"]["containerStatuses"] = []
    await put(here.api, late)
    await browser.open(f"{here.url}#/pod/shop/late")
    said = "document.querySelector('#detail .box strong')?.innerText ?? ''"
    first = await browser.until(f"({said}).match(/[(]for (4[789]|50) s[)]/)?.[1]")
    await browser.until(f"({said}).includes(`(for ${{Number(arguments[0]) + 1}} s)`)", first, seconds=3)


async def test_commands_in_a_remedy_are_code_that_can_be_copied(here: Page, browser: Browser) -> None:
    await browser.open(f"{here.url}#/pod/shop/web-1")
    await browser.until("document.querySelector('[data-part=refused]')")
    assert here.answers.taker is not None
    do = "`kubectl label pod web-2 app=a`, or `kubectl edit`"
    by = Refused("node1", time.time(), 3, "ingress", "shop/web-2", "shop/web-1", "80/TCP", "shop/deny", do)
    here.answers.taker.take([by])
    await browser.until("document.querySelector('#detail .do code')")
    here_are = "[...document.querySelectorAll('#detail .do code')].map((one) => one.innerText)"
    codes = await browser.value(here_are)
    assert codes == ["kubectl label pod web-2 app=a", "kubectl edit"]
    assert "`" not in await browser.value("document.querySelector('#detail .do').innerText")
    await browser.devtools("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    # A button that is drawn anew meanwhile says nothing of the click.
    button = "document.querySelector('#detail .copy')"
    await browser.until(f"{button}.innerText === 'copied' || ({button}.click(), false)")
    assert await browser.value("navigator.clipboard.readText()") == codes[0]
    made = (
        "import(new URL('code.js', location)).then((one) => one.coded(arguments[0], new Map()).flat()"
        ".filter(Boolean).map((part) => part.outerHTML ?? part))"
    )
    assert await browser.value(made, f"a `{SCRIPT}` b `c") == [
        "a ",
        f"<code>{SCRIPT}</code>".replace("<script>", "&lt;script&gt;")
        .replace("</script>", "&lt;/script&gt;")
        .replace("<img src=x onerror=document.title='owned'>", "&lt;img src=x onerror=document.title='owned'&gt;"),
        " b `c",
    ]
    assert await browser.log() == []


async def test_the_panel_can_be_closed_wherever_it_is_scrolled_to(here: Page, browser: Browser) -> None:
    await browser.open(f"{here.url}#/pod/shop/web-1")
    await browser.until("document.querySelector('#detail details')")
    await browser.value("document.querySelector('#detail details').open = true")
    await browser.value("document.querySelector('#detail').scrollTop = 300")
    assert await browser.value("document.querySelector('#detail').scrollTop") == 300
    box = await browser.value("document.querySelector('#detail .close').getBoundingClientRect().toJSON()")
    assert 0 <= box["top"] < 40
    on_top = "document.elementFromPoint(arguments[0], arguments[1]).className"
    assert await browser.value(on_top, box["left"] + 5, box["top"] + 5) == "close"
