"""The page in a real browser (Debian's chromium): what a reader sees, clicks and hears.

apt-get install chromium && make test-page
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sys
import time

import pytest

from page_worlds import HOSTILE, grouped, hostile, photos, source
from recallatk import EmbeddingSet, EvalProtocol, compare, evaluate_embeddings, track
from recallatk.page import Images, PageOptions, PageSource, compare_page, history_page, run_page, write_page

pytestmark = pytest.mark.integration
sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
QUIET = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
SERIOUS = {"serious", "critical"}


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no chromium; as root: apt-get install chromium")
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=[*sandbox, *QUIET])
        yield launched
        launched.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a page; at its end nothing was fetched from outside and nothing was complained of."""
    said, asked, contexts = [], [], []

    def open_page(page, *, width=1280, scheme="light"):
        file = tmp_path / f"page {len(contexts)} é.html"
        write_page(page, file)
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(file.as_uri())
        return tab

    yield open_page
    assert not said
    outside = [address for address in asked if not address.startswith(("file:", "data:"))]
    assert not outside
    for context in contexts:
        context.close()


def serious(tab):
    """What axe finds, in short."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(tab).response["violations"]
    return [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found if one["impact"] in SERIOUS]


def two_systems():
    sources = {"good": source(grouped(60, 6, noise=0.8)), "bad": source(grouped(60, 6, noise=2.5))}
    return compare_page(compare({name: one.report for name, one in sources.items()}), sources)


def three_epochs():
    runs = {f"epoch_{e}": evaluate_embeddings(grouped(60, 6, noise=3.0 - e)) for e in range(3)}
    return history_page(track(runs), runs)


PAGES = {"run": lambda: run_page(photos(2.0)), "hostile": lambda: run_page(hostile()), "compare": two_systems,
         "history": three_epochs}  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("kind", PAGES)
def test_readers_of_every_kind_can_use_it(show, kind, width, scheme):
    tab = show(PAGES[kind](), width=width, scheme=scheme)
    assert serious(tab) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_filters_order_search_and_pages(show):
    one = photos(2.0)
    tab = show(run_page(one))
    queries = one.report.queries
    missed = int((queries["recall@1"] < 1).sum())
    assert tab.get_by_role("status").first.text_content().startswith(f"{missed} queries")
    first = tab.locator(".query h3").first.text_content()
    hardest = max(queries["negatives_ahead"][row] for row in range(len(queries["id"])) if queries["recall@1"][row] < 1)
    assert f"rank {hardest + 1} of" in tab.locator(".query .about").first.text_content()
    tab.get_by_role("button", name="Next").first.click()
    assert "page 2 of" in tab.get_by_role("status").first.text_content()
    assert tab.locator(".query h3").first.text_content() != first
    tab.get_by_label("Show").select_option("hit")
    assert tab.locator(".query .mark.hit").first.text_content().endswith("hit at 1")
    tab.get_by_label("Show").select_option("all")
    tab.get_by_label("Label contains").fill("monument")
    assert tab.get_by_role("status").first.text_content().startswith("27 queries")
    tab.get_by_label("Id contains").fill("opera")
    assert tab.locator(".query").count() == 1
    tab.get_by_label("Id contains").fill("")
    orders = []
    for seed in ("1", "2", "1"):
        tab.get_by_label("Order").select_option("random")
        tab.get_by_label("Seed").fill(seed)
        orders.append(tab.locator(".query h3").all_text_contents())
    assert orders[0] == orders[2] != orders[1]
    for option in tab.get_by_label("Show").locator("option").all():
        tab.get_by_label("Show").select_option(option.get_attribute("value"))
        stated = int(option.text_content().rsplit(": ", 1)[1].replace(",", ""))
        tab.get_by_label("Label contains").fill("")
        assert tab.get_by_role("status").first.text_content().split(" ")[0] == str(stated)


def test_tables_sort_and_lead_to_the_queries(show):
    tab = show(run_page(photos(2.0)))
    table = tab.locator('[data-table="labels"]')
    head = table.get_by_role("button", name="queries", exact=True)
    head.click()
    assert table.locator('th[aria-sort="descending"]').text_content() == "queries"
    numbers = [int(cell.text_content()) for cell in table.locator("tbody tr td:nth-child(4)").all()]
    assert numbers == sorted(numbers, reverse=True)
    table.get_by_label("Search").fill("hamm")
    assert table.locator("tbody tr").count() == 1
    table.get_by_role("button", name="hammer").click()
    assert tab.get_by_label("Label contains").input_value() == "hammer"
    tab.locator('[data-table="confusions"] tbody button').first.click()
    assert tab.locator(".query").count() == 1


@pytest.mark.parametrize("name", ["label1", "two\nlines", '"1"'])
def test_a_button_leads_to_this_label_or_id_alone(show, name):
    rows = grouped(120, 12, noise=3.0)
    labels = [name if label == "label1" else label for label in rows.labels]
    ids = [f"{row}" for row in range(120)]
    tab = show(run_page(source(EmbeddingSet(rows.embeddings, labels, ids=ids))))
    status = tab.get_by_role("status").first
    parts = name.split()
    table = tab.locator('[data-table="labels"]')
    whole = re.compile(f"^{r'.'.join(map(re.escape, parts))}$", re.DOTALL)
    table.locator("tbody button").filter(has_text=whole).click()
    assert status.text_content() == "10 queries of exactly this label"
    tab.locator('[data-table="confusions"] tbody button').first.click()
    assert status.text_content() == "1 query of exactly this id"
    tab.get_by_label("Id contains").fill("11")
    assert status.text_content().startswith("11 queries, ")


def test_queries_that_do_not_fit_are_told_where_they_would_be(show):
    one = PageSource(evaluate_embeddings(grouped(30_000, 50, dim=4)))
    tab = show(run_page(one, PageOptions(num_queries=20, max_size=1_000_000)))
    listed = len(json.loads(tab.locator("#data").text_content())["queries"]["item"])
    assert listed < 30_000
    said = tab.locator("#explorer .notice").text_content()
    assert f"{30_000 - listed:,} of 30,000 queries do not fit" in said


def test_hardest_means_of_all_systems(show):
    noises = {"a": 0.5, "b": 6.0, "c": 0.5}
    sources = {name: source(grouped(60, 6, noise=noise)) for name, noise in noises.items()}
    tab = show(compare_page(compare({name: one.report for name, one in sources.items()}), sources))
    tab.get_by_label("Show").select_option("all")
    hardest = int(sources["b"].report.queries["negatives_ahead"].max()) + 1
    assert f"rank {hardest} of" in tab.locator(".query").first.text_content()


def test_runs_of_other_cutoffs_stand_side_by_side(show):
    runs = {}
    for name, ks in {"a": (1, 5), "b": (5, 10)}.items():
        runs[name] = evaluate_embeddings(grouped(60, 6, noise=2.0), protocol=EvalProtocol(ks=ks))
    tab = show(compare_page(compare(runs), {name: PageSource(one, name) for name, one in runs.items()}))
    assert tab.locator(".query").count() == 10


def test_the_whole_of_it_works_from_the_keyboard(show):
    tab = show(run_page(photos(2.0)))
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab.locator("#map svg").focus()
    tab.keyboard.press("ArrowRight")
    assert tab.locator("#map [role=status]").text_content()
    tab.locator("#theme").focus()
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.keyboard.press("Enter")
    tab.keyboard.press("Enter")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != light
    assert tab.locator("#theme").text_content() == "Colours: dark"


def test_the_signature_is_copied(show):
    one = source(grouped(30, 5))
    tab = show(run_page(one))
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.get_by_role("button", name="Copy the signature").click()
    tab.get_by_text("Copied", exact=True).wait_for()
    assert tab.evaluate("navigator.clipboard.readText()") == str(one.report.signature)


def test_hovering_the_map_shows_the_picture(show):
    tab = show(run_page(photos(2.0)))
    box = tab.locator("#map .point").first.bounding_box()
    tab.locator("#map svg").scroll_into_view_if_needed()
    box = tab.locator("#map .point").first.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert tab.locator("#map .tip img").count() == 1


def test_what_the_map_says_stands_beside_the_mark_and_a_click_leads_to_the_query(show):
    tab = show(run_page(photos(2.0)))
    svg = tab.locator("#map svg")
    svg.scroll_into_view_if_needed()
    mark = tab.locator("#map .miss-point").first.bounding_box()
    tab.mouse.move(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
    tip, area = tab.locator("#map .tip").bounding_box(), svg.bounding_box()
    assert area["y"] <= tip["y"]
    assert tip["y"] + tip["height"] <= area["y"] + area["height"] + 1
    named = tab.locator("#map .tip bdi").first.text_content()
    tab.mouse.click(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
    assert tab.locator(".query h3 > bdi").all_text_contents() == [named]


def test_all_ten_neighbours_are_seen_without_scrolling_on_a_desk(show):
    tab = show(run_page(photos(2.0)))
    strips = tab.locator(".strip ol")
    assert strips.first.locator("li").count() >= 10
    for strip in strips.all():
        assert strip.evaluate("one => one.scrollWidth <= one.clientWidth")
    assert min(strip.bounding_box()["width"] for strip in tab.locator(".strip li .picture").all()) >= 75


def test_confusions_show_the_query_beside_what_was_retrieved(show):
    tab = show(run_page(photos(2.0)))
    row = tab.locator('[data-table="confusions"] tbody tr').first
    label, retrieved = (row.locator(where).text_content() for where in ("th", "td:nth-child(2)"))
    assert row.locator("img").count() == 2
    row.locator("button").click()
    assert tab.locator(".query .label").text_content() == label
    wrong = tab.locator(".query li:has(.picture.miss) .caption > bdi").first
    assert wrong.text_content() == retrieved


@pytest.mark.parametrize("kind", PAGES)
def test_the_links_at_the_top_lead_to_sections(show, kind):
    tab = show(PAGES[kind]())
    links = tab.get_by_label("On this page").locator("a")
    for link in links.all():
        assert tab.locator(f"{link.get_attribute('href')}:is(h2)").count() == 1
    links.last.click()
    target = tab.locator(links.last.get_attribute("href")).bounding_box()
    assert target["y"] >= tab.locator("header").bounding_box()["height"]


def test_paper_is_light_and_has_no_buttons(show):
    tab = show(run_page(photos(2.0)), scheme="dark")
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(248, 248, 246)"
    assert not tab.locator("#theme").is_visible()
    assert not tab.get_by_role("button", name="Next").first.is_visible()


def test_names_are_not_squeezed_into_a_column_of_letters(show):
    tab = show(run_page(photos(2.0)), width=390)
    for cell in tab.locator("tbody th").all():
        assert cell.bounding_box()["width"] >= 70


def test_hostile_names_are_shown_and_do_nothing(show):
    tab = show(run_page(hostile()))
    tab.get_by_label("Show").select_option("all")
    seen = tab.locator(".query h3 > bdi").all_text_contents()
    tab.get_by_role("button", name="Next").first.click()
    seen += tab.locator(".query h3 > bdi").all_text_contents()
    assert set(HOSTILE) <= set(seen)
    assert tab.evaluate("window.hit") is None
    assert tab.title() == f"{HOSTILE[2]} · recallatk"


@pytest.mark.parametrize("pictures", ["embed", "folder"])
def test_pictures_are_seen_and_missing_ones_are_said(show, pictures):
    tab = show(run_page(photos(2.0), PageOptions(pictures=pictures)))
    widths = "[...document.querySelectorAll('.picture img')].map((one) => one.naturalWidth)"
    tab.wait_for_load_state("load")
    tab.wait_for_function("[...document.querySelectorAll('.picture img')].every((one) => one.complete)")
    assert min(tab.evaluate(widths)) > 0
    tab.get_by_label("Show").select_option("all")
    tab.get_by_label("Id contains").fill("wrench")
    assert "missing: the file cannot be read" in tab.locator("#explorer").text_content()


def test_a_text_stands_in_the_place_of_a_picture(show):
    rows = grouped(12, 3, noise=2.0)
    said = {name: f"a caption of {name}" for name in rows.row_ids[1:]} | {rows.row_ids[0]: "<b>שלום</b>"}
    tab = show(run_page(dataclasses.replace(source(rows), images=Images(texts=said))))
    tab.get_by_label("Show").select_option("all")
    shown = tab.locator(".query-box .words").all_text_contents()
    assert set(shown) <= set(said.values())
    assert len(shown) >= 10
    assert "missing" not in tab.locator("#explorer").text_content()
    assert tab.locator(".words").first.get_attribute("title") in said.values()
    assert not serious(tab)


def test_compare_filters_who_is_right(show):
    tab = show(two_systems())
    options = tab.get_by_label("Show").locator("option").all_text_contents()
    assert [option.split(":")[0] for option in options[1:3]] == ["good right, bad wrong", "bad right, good wrong"]
    assert sum(int(option.rsplit(" ", 1)[1]) for option in options[1:]) == 60
    assert tab.locator(".query").first.locator("ol").count() == 2
    buttons = tab.get_by_label("Who is right at 1").get_by_role("button")
    assert buttons.locator("nth=0").get_attribute("aria-pressed") == "true"
    for button in buttons.all():
        button.click()
        found, words = button.locator("strong").text_content(), button.locator("bdi").text_content()
        assert tab.get_by_label("Show").locator("option:checked").text_content() == f"{words}: {found}"
        assert tab.get_by_role("status").first.text_content().split(" ")[0] == found


def test_large_runs_open_and_filter_fast(show, capsys):
    for n, labels in ((5_000, 500), (60_000, 1_000)):
        one = source(grouped(n, labels, noise=1.5))
        page = run_page(one, PageOptions(num_queries=200))
        started = time.perf_counter()
        tab = show(page)
        tab.locator(".query").first.wait_for()
        opened = time.perf_counter() - started
        started = time.perf_counter()
        tab.get_by_label("Order").select_option("id")
        tab.get_by_label("Show").select_option("all")
        sorted_after = time.perf_counter() - started
        with capsys.disabled():
            sys.stdout.write(
                f"\n{n:,} queries, {page.size / 1e6:.1f} MB: open in {opened:.2f} s, sorted in {sorted_after:.2f} s\n"
            )
        assert f"{n:,} queries" in tab.get_by_role("status").first.text_content()
