"""The rows of the page as news come: each in its place, and lit for a moment without any work between."""

from __future__ import annotations

from tests.browser import Browser, needs_chromium
from tests.unit.view.world import ROW, TEXT, Page, put, running, shop_service, waiting

pytestmark = needs_chromium
_PODS = "[...document.querySelectorAll('[aria-label=\"Pods on node1\"] tbody tr')].map((one) => one.dataset.key)"
_SERVICES = "[...document.querySelectorAll('[aria-label=\"Services\"] tbody tr')].map((one) => one.dataset.key)"
_MARK = "document.querySelectorAll('tbody tr').forEach((one) => (one.mark = 1))"
_MARKED = "[...document.querySelectorAll('tbody tr')].filter((one) => one.mark).length"


async def test_a_new_row_comes_to_its_place_and_the_others_are_not_touched(here: Page, browser: Browser) -> None:
    await browser.value(_MARK)
    marked = await browser.value(_MARKED)
    for name in ("zz", "aa", "mm"):
        await put(here.api, running(name, "10.0.1.77", "node1"))
        await put(here.api, shop_service(name, "10.9.0.77"))
        await browser.until(ROW, f"service/shop/{name}")
        await browser.until(ROW, f"pod/shop/{name}")
    for rows in (_PODS, _SERVICES):
        shown = await browser.value(rows)
        assert shown == sorted(shown) and len(shown) >= 4
    assert await browser.value(_MARKED) == marked


async def test_many_new_rows_at_once_are_in_order(here: Page, browser: Browser) -> None:
    names = [f"many-{(at * 37) % 50:02}" for at in range(50)]
    for name in names:
        await put(here.api, running(name, "10.0.1.77", "node1"))
    await browser.until(f"{_PODS}.length >= 51")
    shown = await browser.value(_PODS)
    assert shown == sorted(shown) and {f"pod/shop/{name}" for name in names} <= set(shown)


async def test_a_pod_that_gets_a_node_moves_there(here: Page, browser: Browser) -> None:
    await put(here.api, waiting("moves", ""))
    await browser.until(f"{ROW}?.closest('section').dataset.node === '\\uffff'", "pod/shop/moves")
    await put(here.api, running("moves", "10.0.1.78", "node1"))
    await browser.until(f"{ROW}?.closest('section').dataset.node === 'node1'", "pod/shop/moves")
    shown = await browser.value(_PODS)
    assert shown == sorted(shown)


async def test_what_changed_is_lit_for_a_moment_and_nothing_is_animated(here: Page, browser: Browser) -> None:
    await put(here.api, running("web-1", "10.0.1.99", "node1"))
    await browser.until(f"({TEXT}).includes('10.0.1.99') && {ROW}.classList.contains('fresh')", "pod/shop/web-1")
    assert await browser.value("document.getAnimations().length") == 0
    await browser.until("document.querySelectorAll('.fresh').length === 0")
