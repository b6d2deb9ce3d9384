"""The page without a browser: what is in it, what is not, and how large it is."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from command_line import MEAN, data, recallatk  # noqa: F401 - a fixture
from page_worlds import HOSTILE, grouped, hostile, photos, source
from recallatk import EmbeddingSet, EvalProtocol, RecallatkError, compare, evaluate_embeddings, track
from recallatk.page import (
    Images,
    PageOptions,
    PageSource,
    compare_page,
    history_page,
    run_page,
    write_page,
)
from recallatk.page.curves import rank_counts, recall_over_k
from recallatk.page.gather import find_confusions, find_lists, label_rows
from recallatk.page.markup import as_json
from recallatk.page.selection import choose_queries, hits_at, order_of_ids, sample_queries, value_of
from recallatk.page.words import about, gauge, in_short, noticed
from recallatk.statistics import Interval
from recallatk.types import ChoiceError


class Elements(HTMLParser):
    """The tags of a page, and the text of its scripts."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.scripts, self._inside = [], [], False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = self._inside and tag != "script"

    def handle_data(self, text):
        if self._inside:
            self.scripts[-1] += text


def content(page):
    return json.loads(Elements(page.html).scripts[0])


def test_a_page_is_one_file_that_names_no_address():
    page = run_page(photos())
    elements = Elements(page.html)
    policy = next(a["content"] for tag, a in elements.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    for tag, attributes in elements.tags:
        assert tag not in {"link", "iframe", "object", "embed", "base", "form", "image"}
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert attributes.get(name, "#").startswith("#"), (tag, attributes)
    addresses = set(re.findall(r"https?://[^\s\"']+", page.html))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, which nobody fetches


def test_the_number_comes_first_with_interval_chance_and_what_was_excluded():
    rows = grouped(40, 8)
    report = evaluate_embeddings(
        EmbeddingSet(rows.embeddings, [*rows.labels[:-1], "alone"], ids=rows.ids), protocol=EvalProtocol(ks=(1, 3))
    )
    html = run_page(PageSource(report, "run")).html
    value = report.values_by_metric["recall@1"]
    places = [
        html.index(text)
        for text in (
            f"{value.value:.4f}",
            f"{value.interval.low:.3f} to {value.interval.high:.3f}",
            f"chance {value.chance:.3f}",
            "1 excluded without a positive",
            'id="signature-run"',
            'id="queries"',
        )
    ]
    assert places == sorted(places)
    assert str(report.signature) in html
    assert "alone" in html


def test_the_scale_beside_a_number_is_cut_at_its_ends():
    assert gauge(0.5, Interval(0.4, 0.65, "wilson", 0.95, 9), 0.1) == {
        "value": 50.0,
        "low": 40.0,
        "width": 25.0,
        "chance": 10.0,
    }
    assert gauge(0.99, Interval(0.9, 1.2, "wilson", 0.95, 9), None) == {
        "value": 99.0,
        "low": 90.0,
        "width": 10.0,
        "chance": None,
    }
    assert gauge(12.0, None, None) is None


def test_what_was_evaluated_stands_in_one_line():
    report = photos().report
    seen = dataclasses.replace(
        report,
        provenance=dataclasses.replace(
            report.provenance,
            encoder="hog",
            data={"root": "C:\\data\\shoes\\"},
            environment={"finished": "2026-01-02T03:04:05+00:00"},
        ),
    )
    assert about(seen) == "data shoes · encoder hog · finished 2026-01-02"
    assert about(dataclasses.replace(report, provenance=type(report.provenance)())) == ""


def test_a_name_cannot_turn_the_sentence_around_it():
    turned = "\u202eeno"
    rows = grouped(40, 8, noise=3.0)
    seen = EmbeddingSet(
        rows.embeddings, [turned if one == rows.labels[0] else one for one in rows.labels], ids=rows.ids
    )
    report = evaluate_embeddings(seen)
    said = " ".join(in_short(report, label_rows(report), [(turned, "other", 2, "id")]))
    assert said.count(turned) >= 1
    assert said.count(turned) == said.count(f"\u2068{turned}\u2069")


def test_warnings_come_before_what_is_only_noticed():
    report = dataclasses.replace(photos().report, warnings=("look",))
    kinds = [kind for kind, _ in noticed(report)]
    assert kinds[0] == "warning"
    assert kinds == sorted(kinds, key=lambda kind: kind != "warning")


@pytest.mark.parametrize("ties", ["expected", "pessimistic", "optimistic"])
@pytest.mark.parametrize("average", ["micro", "macro"])
def test_recall_over_k_is_the_recall_of_the_report(ties, average):
    points = np.random.default_rng(0).integers(-1, 2, (60, 3)) + 0.0
    points[~points.any(axis=1)] = 1
    rows = EmbeddingSet(points, [f"l{i % 7}" for i in range(60)], ids=[f"i{i}" for i in range(60)])
    protocol = EvalProtocol(ks=(1, 2, 5, 10, 40), ties=ties, average=average)
    report = evaluate_embeddings(rows, protocol=protocol)
    for k in protocol.ks:
        np.testing.assert_array_equal(hits_at(report, k), value_of(report, k))
    curve = {point.k: point for point in recall_over_k(report)}
    for k in protocol.ks:
        value = report.values_by_metric[f"recall@{k}"]
        assert curve[k].value == value.value
        assert (curve[k].low, curve[k].high) == (value.interval.low, value.interval.high)
        assert curve[k].chance == value.chance
    assert sum(count for _, count in rank_counts(report)) == report.num_evaluated


def test_the_lists_are_those_of_the_number():
    rows = grouped(80, 8, noise=1.5)
    found = content(run_page(source(rows), PageOptions(neighbours=5)))
    system, report = found["systems"][0], evaluate_embeddings(rows)
    lists = system["lists"]
    for row in range(80):
        place = slice(*lists["start"][row : row + 2])
        assert len(lists["item"][place]) == 5
        right = [flags & 1 for flags in lists["flags"][place]]
        assert found["items"]["id"][found["queries"]["item"][row]] == rows.ids[row]
        assert any(right) == (report.queries["recall@5"][row] == 1)
        labels = [found["labels"][found["items"]["label"][item]] for item in lists["item"][place]]
        assert [label == rows.labels[row] for label in labels] == [bool(one) for one in right]
    np.testing.assert_array_equal(system["ahead"], report.queries["negatives_ahead"])


def test_confusions_count_what_is_retrieved_for_misses():
    rows = EmbeddingSet(
        [[1, 0], [0.9, 0.1], [0, 1], [0.93, 0.07]], ["cat", "dog", "cat", "dog"], ids=["a", "b", "c", "d"]
    )
    one = source(rows)
    lists = find_lists(one, np.arange(4), PageOptions())
    assert find_confusions(one.report, lists) == [("cat", "dog", 2, "a")]


def test_choosing_takes_misses_first_and_labels_in_turn():
    report = evaluate_embeddings(grouped(400, 20, noise=2.5))
    missed = value_of(report, 1) < 1
    chosen = choose_queries(report, 50, only_wrong=False, seed=0)
    assert missed[chosen].sum() == 40
    labels = [report.queries["label"][row] for row in chosen[:20]]
    assert len(set(labels)) >= 15
    assert missed[choose_queries(report, 1000, only_wrong=True, seed=0)].all()
    assert len(set(choose_queries(report, 1000, only_wrong=False, seed=0).tolist())) == 400
    assert choose_queries(report, 50, only_wrong=False, seed=1).tolist() != chosen.tolist()
    assert len(sample_queries(report, 30, 0)) == 30


def test_choosing_does_not_depend_on_the_order_of_rows():
    rows = grouped(100, 10, noise=2.0)
    order = np.random.default_rng(3).permutation(100).tolist()
    one, other = evaluate_embeddings(rows), evaluate_embeddings(rows.take(order))
    ids = [
        [report.queries["id"][row] for row in choose_queries(report, 20, only_wrong=False, seed=0)]
        for report in (one, other)
    ]
    assert ids[0] == ids[1]


def test_labels_stand_worst_first():
    table = label_rows(evaluate_embeddings(grouped(90, 9, noise=2.0)))
    lows = [one["low"] for one in table]
    assert lows == sorted(lows)
    assert sum(one["n"] for one in table) == 90


def test_hostile_names_stay_text():
    page = run_page(hostile())
    elements = Elements(page.html)
    assert len(elements.scripts) == 2
    assert not any(tag == "img" or "onerror" in attributes for tag, attributes in elements.tags)
    found = json.loads(elements.scripts[0])
    assert set(HOSTILE) <= set(found["items"]["id"])
    assert "<" not in elements.scripts[0]
    assert "{{ 7*7 }}" in page.html
    assert as_json("\udce9") == '"\\udce9"'


def test_without_embeddings_the_page_says_how_to_get_lists():
    page = run_page(PageSource(evaluate_embeddings(grouped(30, 5))))
    found = content(page)
    assert "--save-embeddings" in page.html
    assert found["systems"][0]["lists"] is None
    assert "confusions" in found["tables"]
    assert "map" not in found
    assert 'id="map"' not in page.html


def test_pictures_are_inside_or_beside_or_missing(tmp_path):
    one = photos()
    inside = run_page(one)
    found = content(inside)
    assert len(found["pictures"]) == 137
    assert all(address.startswith("data:image/webp;base64,") for address in found["pictures"].values())
    assert any("1 picture is missing" in note for note in inside.notes)
    assert list(found["notes"].values()) == ["the file cannot be read (No such file or directory)"]
    beside = run_page(one, PageOptions(pictures="folder"))
    lines = write_page(beside, tmp_path / "a page.html")
    assert len(list((tmp_path / "a page_files").iterdir())) == 137
    assert re.match(r"wrote .*a page.html with 137 pictures in .*a page_files, [\d.]+ [kM]B", lines[0])
    assert 'content="a%20page_files"' in (tmp_path / "a page.html").read_text("utf-8")
    none = run_page(one, PageOptions(pictures="none"))
    assert content(none)["pictures"] == {}
    assert none.size < beside.size < inside.size


def test_a_picture_that_changed_since_the_run_is_marked(tmp_path):
    one = photos()
    rows = dataclasses.replace(one.query, content=["0" * 64] * len(one.query))
    changed = PageSource(evaluate_embeddings(rows), query=rows, images=one.images)
    page = run_page(changed)
    assert any("137 pictures have changed" in note for note in page.notes)


@pytest.mark.parametrize("pictures", ["embed", "folder"])
def test_the_size_is_bounded_and_what_gives_way_is_said(pictures):
    whole = run_page(photos(3.0), PageOptions(pictures=pictures))
    fixed = run_page(photos(3.0), PageOptions(pictures="none")).size
    for room in (250_000, 60_000):
        limit = max(fixed + room, 500_000) if room > 100_000 else 500_000
        page = run_page(photos(3.0), PageOptions(pictures=pictures, max_size=limit))
        assert page.size <= limit
        if whole.size > limit:
            assert any("--max-size" in note for note in page.notes)
            assert all(note in page.html for note in page.notes)


def test_many_queries_are_listed_and_few_have_lists():
    found = content(run_page(source(grouped(3000, 50, noise=2.0)), PageOptions(num_queries=20)))
    starts = np.diff(found["systems"][0]["lists"]["start"])
    assert len(starts) == 3000
    assert np.count_nonzero(starts) == 20
    assert np.flatnonzero(starts).tolist() == found["chosen"]


@pytest.mark.parametrize("script", ["", "図" * 60], ids=["latin", "other"])
def test_a_list_that_does_not_fit_is_shortened_and_said(script):
    rows = grouped(30_000, 50, dim=4)
    rows = dataclasses.replace(rows, ids=[script + name for name in rows.ids])
    page = run_page(PageSource(evaluate_embeddings(rows)), PageOptions(num_queries=20, max_size=1_000_000))
    assert page.size <= 1_000_000
    assert any("of 30,000 queries" in note for note in page.notes)
    assert content(page)["total"] == 30_000
    assert int(re.search(r"Size: (\d+) kB", page.html)[1]) == pytest.approx(page.size / 1e3, abs=3)


def test_an_id_of_any_length_takes_its_own_room_alone():
    assert order_of_ids(["b" * 10_000_000, *map(str, range(20_000))]).tolist()[-1] == 0


@pytest.mark.parametrize("ks", [((1, 5), (5, 10)), ((5, 10), (1, 5))])
def test_runs_of_other_cutoffs_are_shown_at_those_of_the_first(ks):
    runs = {}
    for number, cutoffs in enumerate(ks):
        runs[f"run{number}"] = evaluate_embeddings(
            grouped(60, 6, noise=1.0 + number), protocol=EvalProtocol(ks=cutoffs)
        )
    compared = content(compare_page(compare(runs), {name: PageSource(one, name) for name, one in runs.items()}))
    table = content(history_page(track(runs), runs))["tables"]["labels"]
    for number, (report, system) in enumerate(zip(runs.values(), compared["systems"], strict=True)):
        k = ks[0][0]
        ahead = np.asarray(report.queries["negatives_ahead"])
        shown = [compared["items"]["id"][item] for item in compared["queries"]["item"]]
        hits = dict(zip(report.queries["id"], (ahead < k).tolist(), strict=True))
        assert system["value"][str(k)] == [hits[name] for name in shown]
        for label, over in zip(table["label"], table["over"], strict=True):
            own = [one < k for one, of in zip(ahead, report.queries["label"], strict=True) if of == label]
            assert over[number] == pytest.approx(np.mean(own), abs=1e-4)


def test_misses_of_labels_are_counted_and_not_worked_out_from_a_mean():
    rng = np.random.default_rng(0)
    labels = ["big"] * 12 + [f"l{number}" for number in range(6) for _ in range(2)]
    rows = EmbeddingSet(rng.integers(1, 3, (len(labels), 2)).astype(np.float32), labels)
    report = evaluate_embeddings(rows)
    missed = value_of(report, 1) < 1
    big = int(sum(missed[np.array(labels) == "big"]))
    assert report.tied_queries
    assert re.search(rf"Most misses: \W*big\W* \({big}\)", run_page(PageSource(report)).html)


def test_a_run_without_labels_has_no_tables_of_them():
    rng = np.random.default_rng(0)
    rows = EmbeddingSet(rng.normal(size=(20, 4)), None, positions=rng.random((20, 2)) * 50)
    report = evaluate_embeddings(rows, protocol=EvalProtocol(relevance="radius", radius=20))
    page = run_page(PageSource(report, query=rows))
    assert report["recall@1"] < 1
    for said in ("Retrieved instead", "data-table"):
        assert said not in page.html.split("<script")[0]


def test_rows_of_another_run_are_refused():
    first, second = (evaluate_embeddings(grouped(60, 6, noise=noise)) for noise in (1.0, 2.5))
    with pytest.raises(RecallatkError, match="not of one run"):
        run_page(PageSource(dataclasses.replace(first, queries=second.queries)))


def test_a_plot_of_some_queries_says_so():
    said = "a random 1,500 queries"
    assert said in run_page(source(grouped(1600, 40))).html
    assert said not in run_page(source(grouped(1500, 40))).html


def test_lists_of_few_columns_are_bounded_too(monkeypatch):
    monkeypatch.setattr("recallatk.page.gather.MOST_WORK", 1e7)
    one = source(grouped(1000, 20, dim=2))
    assert not find_lists(one, np.arange(5), PageOptions()).whole


def test_names_of_runs_are_not_adapted_with_the_drawing():
    names = ["#010101", 'id="x" url(#y)']
    sources = {name: source(grouped(30, 5, noise=number + 1)) for number, name in enumerate(names)}
    html = compare_page(compare({name: one.report for name, one in sources.items()}), sources).html
    for name in names:
        assert re.search(rf"<text[^>]*>{re.escape(name)}</text>", html)


def test_compare_shows_both_systems():
    rows = grouped(60, 6, noise=0.5)
    worse = grouped(60, 6, noise=3.0)
    sources = {"good": source(rows), "<b>bad": source(worse)}
    comparison = compare({name: one.report for name, one in sources.items()})
    page = compare_page(comparison, sources)
    found = content(page)
    assert [system["name"] for system in found["systems"]] == ["good", "<b>bad"]
    assert found["tables"]["labels"]["change1"] == sorted(found["tables"]["labels"]["change1"])
    assert "&lt;b&gt;bad is worse than good" in page.html
    assert "<b>" not in page.html


def test_history_shows_failed_runs_and_labels():
    runs = {f"epoch_{e}": evaluate_embeddings(grouped(60, 6, noise=3.0 - e)) for e in range(3)}
    runs["epoch_3"] = RecallatkError("out of <memory>")
    page = history_page(track(runs), runs)
    found = content(page)
    assert found["steps"] == ["0", "1", "2"]
    assert len(found["tables"]["labels"]["over"][0]) == 3
    assert "out of &lt;memory&gt;" in page.html
    assert page.html.count('role="img"') == 1


def test_plots_have_words_and_only_colours_of_the_page():
    html = run_page(photos()).html
    drawings = re.findall(r"<svg .*?</svg>", html, re.DOTALL)
    assert len(drawings) == 3
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    for drawing in drawings:
        assert "<title id=" in drawing
        assert "<desc id=" in drawing
        assert not re.search(r"(fill|stroke): #", drawing)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pictures": "all"}, "pictures='all' is not a choice"),
        ({"max_size": 10}, "max_size=10: give 500,000 or more"),
        ({"neighbours": 0}, "neighbours=0: give 1 or more"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, said):
    with pytest.raises(ChoiceError, match=re.escape(said)):
        PageOptions(**options)


def test_embeddings_of_another_run_are_refused():
    report = evaluate_embeddings(grouped(30, 5))
    with pytest.raises(RecallatkError, match="not those of the queries of this run"):
        PageSource(report, query=grouped(20, 5))


def test_writing_does_not_write_over_and_says_what_is_in_the_way(tmp_path):
    page = run_page(source(grouped(20, 4)))
    file = tmp_path / "page.html"
    write_page(page, file)
    with pytest.raises(RecallatkError, match="there already"):
        write_page(page, file)
    assert write_page(page, file, overwrite=True)[0].startswith("wrote ")
    with pytest.raises(RecallatkError, match="cannot be written"):
        write_page(page, tmp_path / "none" / "page.html")


def test_the_commands_write_pages(data):  # noqa: F811
    done = recallatk("eval", data, *MEAN, "-k", 1, 2, "-o", "run", "--save-embeddings", "--report", "eval.html")
    assert done.code == 0
    assert re.search(r"^wrote eval.html, \d+ kB$", done.err, re.MULTILINE)
    done = recallatk("report", "run", "-o", "report.html")
    assert (done.code, done.out) == (0, "")
    texts = [Path(name).read_text("utf-8") for name in ("eval.html", "report.html")]
    pages = [json.loads(Elements(text).scripts[0]) for text in texts]
    assert pages[0]["systems"][0]["lists"] == pages[1]["systems"][0]["lists"]
    assert pages[0]["pictures"] == pages[1]["pictures"]
    assert len(pages[0]["pictures"]) == 7
    assert recallatk("compare", "run", "run", "--report", "compare.html").code == 0
    assert recallatk("history", "run", "--report", "history.html").code == 0


def test_what_is_gone_is_said_on_the_page_of_a_saved_run(data):  # noqa: F811
    recallatk("eval", data, *MEAN, "-o", "run")
    data.rename("elsewhere")
    assert recallatk("report", "run", "-o", "gone.html").code == 0
    html = Path("gone.html").read_text("utf-8")
    assert "No pictures:" in html
    assert "--data DIR" in html
    assert "--save-embeddings" in html
    assert recallatk("report", "run", "-o", "found.html", "--data", "elsewhere").code == 0
    assert "No pictures:" not in Path("found.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("eval", "data", *MEAN, "--report", "page.pdf"), 2, "the page is an .html file"),
        (("report", "run", "-o", "page.pdf"), 2, ".html"),
        (("report", "run", "run", "-o", "page.html"), 2, "a page is of one run"),
        (("report", "run", "--only-wrong"), 2, "--only-wrong is about the page"),
        (("report", "run", "-o", "nowhere/page.html"), 3, "there is no folder nowhere"),
        (("report", "no-run", "-o", "page.html"), 3, "no-run"),
        (("report", "run", "-o", "page.html", "--max-size", "much"), 2, "--max-size 'much' is not a size"),
        (("eval", "data", *MEAN, "--num-queries", "5"), 2, "--num-queries is about the page; name its file"),
    ],
)
def test_what_cannot_work_is_said_in_one_line(data, argv, code, said):  # noqa: F811
    recallatk("eval", data, *MEAN, "-o", "run")
    done = recallatk(*argv)
    assert done.code == code
    assert said in done.err.splitlines()[-1]


def test_several_encoders_have_a_page_each(data):  # noqa: F811
    done = recallatk("eval", data, *MEAN, "--encoder", "hog", "--report", "page.html")
    assert done.code == 0
    assert "wrote page-tiny_mean_rgb.html" in done.err
    assert "wrote page-hog.html" in done.err


def test_images_without_a_place_are_named():
    one = dataclasses.replace(source(grouped(12, 3)), images=Images({}, {}))
    assert set(content(run_page(one))["notes"].values()) == {"the data set has no such image any more"}
