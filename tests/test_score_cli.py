"""Scores of any system, judged pairs and positions through the command line: the numbers and what is said with them."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recallatk import evaluate_embeddings, load_embeddings, load_report, save_embeddings
from recallatk.cli import main
from recallatk.cli.flags import expand_tokens
from recallatk.metrics import METRICS
from recallatk.types import EmbeddingSet, EvalProtocol, RecallatkError

CASES = Path(os.environ.get("RECALLATK_CASES") or Path(__file__).parents[2] / "shared" / "cases")
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*argv: object) -> tuple[int, str, str]:
        code = 0
        try:
            main([str(word) for word in argv])
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def values(call: Call, *argv: object) -> dict[str, Any]:
    code, out, err = call(*argv, "--json")
    assert code == 0, err
    record: dict[str, Any] = json.loads(out)
    return {name: value["value"] for name, value in record["metrics"].items()} | record["counts"]


def case(name: str) -> tuple[Path, dict[str, Any]]:
    if not CASES.is_dir():
        pytest.skip(f"the acceptance cases are not at {CASES}; say where with RECALLATK_CASES")
    return CASES / name, json.loads((CASES / name / "case.json").read_text("utf-8"))


def write_table(path: Path, header: list[str], rows: list[list[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def write_ids(path: Path, names: list[str]) -> Path:
    path.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return path


@pytest.fixture
def trec(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "run.trec").write_text("q1 Q0 b 1 2 x\nq1 Q0 a 2 1 x\nq2 Q0 a 1 7 x\nq2 Q0 b 9 7 x\n")
    (tmp_path / "qrels.txt").write_text("q1 0 a 1\nq2 0 a 2\nq3 0 c 1\nq4 0 b 0\n")
    return tmp_path / "run.trec", tmp_path / "qrels.txt"


# The report


def test_a_run_and_qrels_give_the_report(trec: tuple[Path, Path], call: Call) -> None:
    code, out, err = call("score", "--run", trec[0], "--qrels", trec[1], "-k", "1,2", "-m", "mrr", "-m", "ndcg@2")
    assert code == 0
    assert out.startswith(
        "[evaluation]\nnum queries: 4\nnum gallery: 3\nembedding_dim: na\n[recall]\nrecall@1: 0.166667\n"
        "recall@2: 0.666667\n[excluded]\nevaluated: 3\nexcluded (no positive): 1\n"
    )
    assert "[chance]" not in out
    assert "[metrics]\nmrr: 0.416667\n" in out
    assert "2 queries without a list (such as 'q3'): nothing is found for them" in out
    assert "[ties]\nrule: expected\nrecall@1: between 0.000000 and 0.333333" in out
    assert "rel:qrels-" in out
    assert "the gallery itself is not known" in err


def test_the_run_is_saved_and_its_record_is_a_protocol(trec: tuple[Path, Path], call: Call, tmp_path: Path) -> None:
    words = ("score", "--run", trec[0], "--qrels", trec[1], "--no-positive", "miss", "--min-grade", 2, "-k", 1)
    code, out, _ = call(*words, "-o", tmp_path / "saved", "--percent")
    assert code == 0
    assert "recall@1: 12.5000" in out
    report = load_report(tmp_path / "saved")
    assert report.protocol == EvalProtocol(ks=(1,), relevance="qrels", no_positive="miss", min_grade=2)
    assert report.provenance.data == {"run": str(trec[0]), "qrels": str(trec[1])}
    assert report.values_by_metric["recall@1"].chance is None
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [
        "queries.parquet",
        "record.json",
        "samples.parquet",
    ]
    assert call(*words, "-o", tmp_path / "saved")[0] == 3
    _, again, _ = call(*words[:5], "--protocol", tmp_path / "saved" / "record.json")
    assert again == str(report) + "\n"


def test_a_run_with_labels_and_ids_knows_its_gallery(trec: tuple[Path, Path], call: Call, tmp_path: Path) -> None:
    query = write_table(tmp_path / "q.csv", ["id", "label"], [["q1", "x"], ["q2", "y"]])
    gallery = write_table(tmp_path / "g.csv", ["id", "label"], [["a", "x"], ["b", "y"], ["c", "y"]])
    code, out, _ = call("score", "--run", trec[0], "--query-labels", query, "--gallery-labels", gallery, "-k", 1)
    assert code == 0
    assert "num gallery: 3\n" in out
    assert "recall@1: 0.250000\n" in out
    assert "[chance]\nrecall@1: 0.500000\n" in out


def test_a_matrix_gives_what_the_embeddings_give(call: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(-3, 4, size=(12, 3)) + 0.5
    labels = [str(label) for label in rng.integers(0, 3, size=12)]
    np.save(tmp_path / "scores.npy", rows[:5] @ rows[5:].T)
    write_ids(tmp_path / "q.txt", labels[:5])
    write_ids(tmp_path / "g.txt", labels[5:])
    words = ("--query-labels", tmp_path / "q.txt", "--gallery-labels", tmp_path / "g.txt", "-k", "1,3", "-m", "map")
    scored = values(call, "score", "--scores", tmp_path / "scores.npy", *words)
    np.save(tmp_path / "q.npy", rows[:5])
    np.save(tmp_path / "g.npy", rows[5:])
    embedded = values(
        call, "eval", "--query", tmp_path / "q.npy", "--gallery", tmp_path / "g.npy", *words, "--similarity", "dot"
    )
    assert embedded.pop("embedding_dim") == 3
    assert scored.pop("embedding_dim") is None
    for counts in (scored, embedded):
        counts.pop("near_tied_queries")  # of other people's scores nothing says what is near
    assert scored == embedded


def test_one_file_of_labels_for_both_sides_is_leave_one_out(call: Call, tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", np.array([[9, 1, 0, 0], [1, 9, 2, 0], [0, 0, 9, 3], [0, 0, 3, 9.0]]))
    labels = write_ids(tmp_path / "y.txt", list("aabb"))
    for words in (("--query-labels", labels), ("--query-labels", labels, "--gallery-labels", labels)):
        assert values(call, "score", "--scores", tmp_path / "s.npy", *words, "-k", 1)["recall@1"] == 0.75


def test_dot_and_euclidean_look_at_the_lengths_of_rows(call: Call, tmp_path: Path) -> None:
    np.savez(tmp_path / "q.npz", embeddings=[[1.0, 0.0]], labels=["a"])
    np.savez(tmp_path / "g.npz", embeddings=[[1.0, 0.1], [9.0, 9.0], [1.0, 0.5]], labels=["b", "c", "a"])
    found = {}
    for similarity in ("cosine", "dot", "euclidean"):
        for k in (1, 2, 3):
            words = ("--query", tmp_path / "q.npz", "--gallery", tmp_path / "g.npz", "--similarity", similarity)
            found[similarity, k] = values(call, "eval", *words, "-k", k)[f"recall@{k}"]
    assert [found["cosine", k] for k in (1, 2, 3)] == [0, 1, 1]
    assert [found["dot", k] for k in (1, 2, 3)] == [0, 0.5, 1]
    assert [found["euclidean", k] for k in (1, 2, 3)] == [0, 1, 1]


# What is refused


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--qrels", "qrels.txt"], 2, "give ranked lists with --run or a matrix with --scores"),
        (["--run", "run.trec", "--scores", "s.npy"], 2, "and not both"),
        (["--run", "run.trec"], 2, "say what the queries are: --query-labels"),
        (["--scores", "s.npy", "--qrels", "qrels.txt"], 2, "say what the queries are"),
        (["--run", "run.trec", "--qrels", "qrels.txt", "--relevance", "label"], 2, "relevance=label does not look"),
        (["--run", "run.trec", "--qrels", "qrels.txt", "-m", "mpa@10"], 2, "did you mean 'mp"),
        (["--run", "run.trec", "--qrels", "qrels.txt", "--save-embeddings", "-o", "out"], 2, "there are none here"),
        (["--run", "run.trec", "--qrels", "qrels.txt", "--overwrite"], 2, "need the folder of the run"),
        (["--run", "run.trec", "--qrels", "run.trec"], 3, "line 1 has 6 fields, not 4"),
        (["--run", "run.trec", "--qrels", "absent.txt"], 3, "cannot be read"),
        (["--run", "run.trec", "--qrels", "qrels.txt", "--level", "hard"], 3, "level=hard needs a level"),
        (["--scores", "s.npy", "--query-ids", "ids.txt"], 2, "say what the queries are"),
        (["--scores", "s.npy", "--query-labels", "ids.txt"], 3, "shape (1, 2); 2 queries and 2 gallery items need"),
        (["--scores", "absent.npy", "--query-labels", "ids.txt"], 3, "there is no file absent.npy"),
    ],
)
def test_what_does_not_fit_is_one_line_and_an_exit_code(
    trec: tuple[Path, Path],
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("s.npy", np.ones((1, 2)))
    write_ids(Path("ids.txt"), ["a", "b"])
    found, out, err = call("score", *words)
    if words[-2:] == ["--query-ids", "ids.txt"]:
        code, message = 3, "query: there are no labels"
    assert (found, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1


def test_flags_of_labels_take_numbers_below_zero(call: Call, tmp_path: Path) -> None:
    assert expand_tokens(["eval", "--junk_labels", "-1", "--ks"]) == ["eval", "--junk-labels=-1", "--ks"]
    assert expand_tokens(["--distractor-labels", "bg", "-2", "x"]) == [
        "--distractor-labels=bg",
        "--distractor-labels=-2",
        "x",
    ]
    np.savez(tmp_path / "q.npz", embeddings=[[1.0, 0.0], [0.0, 1.0]], labels=[1, -1])
    rows = [[1, 0.01], [1, 0.02], [1, 0.1], [0.1, 1]]
    np.savez(tmp_path / "g.npz", embeddings=rows, labels=[-1, 0, 1, -1])
    words = ("eval", "--query", tmp_path / "q.npz", "--gallery", tmp_path / "g.npz", "-k", "1,2,3")
    plain = values(call, *words)
    assert (plain["recall@1"], plain["recall@2"], plain["recall@3"]) == (0.5, 0.5, 1)
    for junk in (["--junk-labels", "-1"], ["--junk-labels=-1"], ["--junk-labels", -1, "--distractor-labels", 0]):
        found = values(call, *words, *junk)
        assert (found["recall@1"], found["recall@2"], found["num_evaluated"]) == (0, 1, 1)
    found = values(call, *words, "--distractor-labels", 0, -1)
    assert (found["recall@2"], found["recall@3"], found["num_evaluated"]) == (0, 1, 1)
    code, _, err = call(*words, "--junk-labels")
    assert code == 2
    assert "--junk-labels" in err


def test_metrics_are_listed_with_their_spelling(call: Call) -> None:
    code, out, _ = call("metrics")
    assert code == 0
    for name, metric in METRICS.items():
        spelling = {"always": f"{name}@k", "maybe": f"{name} or {name}@k", "never": name}[metric.cutoff]
        assert any(line.startswith(f"{spelling} ") and metric.summary in line for line in out.splitlines())


def test_a_page_of_scores_has_the_number_and_says_why_there_are_no_lists(
    trec: tuple[Path, Path], call: Call, tmp_path: Path
) -> None:
    pytest.importorskip("jinja2")
    run, qrels = trec
    pages = tmp_path / "page.html", tmp_path / "saved.html"
    argv = ("score", "--run", run, "--qrels", qrels, "--report", pages[0], "--page-seed", 7)
    code, out, err = call(*argv, "-o", tmp_path / "run")
    assert (code, "wrote" in err) == (0, True), err
    assert call("report", tmp_path / "run", "-o", pages[1])[0] == 0
    for page in pages:
        shown = page.read_text("utf-8")
        assert "Scores have no embeddings, so the page has no neighbours and no map." in shown
        assert out.splitlines()[-1].split()[-1] in shown  # the run id
    assert '"seed":7' in pages[0].read_text("utf-8").replace(" ", "")
    code, _, err = call("report", tmp_path / "run", "--format", "trec-run", "--qrels", qrels)
    assert code == 3
    assert "the run was made from scores" in err
    assert call(*argv[:-4], "--page-seed", 7)[0] == 2


def test_embed_says_that_it_does_not_read_qrels(trec: tuple[Path, Path], call: Call, tmp_path: Path) -> None:
    words = ("embed", tmp_path, "--encoder", "hog", "-o", tmp_path / "e.npy", "--qrels", trec[1])
    code, _, err = call(*words)
    assert code == 2
    assert "--qrels belongs to `recallatk eval`" in err


# The acceptance cases


def test_case_rk09_through_qrels_with_levels_and_a_matrix(call: Call, tmp_path: Path) -> None:
    folder, content = case("rk09-revisited-oxford-junk")
    judged = [
        [f"q{query}", f"d{item}", level]
        for query, truth in enumerate(content["input"]["arrays"]["ground_truth"])
        for level, items in truth.items()
        for item in items
    ]
    qrels = write_table(tmp_path / "qrels.csv", ["query_id", "gallery_id", "level"], judged)
    words = ["--query-ids", write_ids(tmp_path / "q.txt", [f"q{query}" for query in range(3)])]
    words += ["--gallery-ids", write_ids(tmp_path / "g.txt", [f"d{item}" for item in range(10)])]
    words += ["-m", "map_trapezoid", *[word for k in (1, 5, 10) for word in ("-m", f"mp@{k}")]]
    run = tmp_path / "run.txt"
    rankings = content["input"]["arrays"]["ranking"]
    run.write_text(
        "".join(
            f"q{query} Q0 d{item} {place} {-place} x\n"
            for query, items in enumerate(rankings)
            for place, item in enumerate(items)
        )
    )
    for check in content["expected"]:
        level = check["with"]["protocol"]
        for source in (["--scores", folder / "scores.npy"], ["--run", run]):
            found = values(call, "score", *source, "--qrels", qrels, "--level", level, *words)
            expected = {"map_trapezoid" if name == "map" else name: value for name, value in check["values"].items()}
            assert {name: found[name] for name in expected} == pytest.approx(expected, abs=check["tolerance"])
            assert found["num_excluded"] == len(check["excluded_queries"])


def test_case_rk11_through_embeddings_with_positions(call: Call, tmp_path: Path) -> None:
    folder, content = case("rk11-vpr-25-metres")
    for side in ("query", "gallery"):
        rows, positions = (np.load(folder / f"{side}_{part}.npy") for part in ("emb", "xy"))
        save_embeddings(EmbeddingSet(rows, ((),) * len(rows), positions=positions), tmp_path / f"{side}.parquet")
        write_table(tmp_path / f"{side}.csv", ["easting", "northing"], positions.tolist())
    own = ["--query", tmp_path / "query.parquet", "--gallery", tmp_path / "gallery.parquet"]
    bare = ["--query", folder / "query_emb.npy", "--query-labels", tmp_path / "query.csv"]
    bare += ["--gallery", folder / "gallery_emb.npy", "--gallery-labels", tmp_path / "gallery.csv"]
    for files in (own, bare):
        for check in content["expected"]:
            rule = check["with"]["no_positive"]
            words = ["--relevance", "radius", "--radius", "25", "-k", "1,2,3", "--no-positive", rule]
            found = values(call, "eval", *files, *words)
            assert {name: found[name] for name in check["values"]} == pytest.approx(check["values"], abs=1e-6)
            for name, count in check.get("counts", {}).items():
                assert found[name] == count
    out = call("eval", *own, "--relevance", "radius", "-k", "1,2,3")[1]
    assert "nothing is within 25 m: 1 (e.g. 2)" in out


@pytest.mark.parametrize("all_cameras_equal", [False, True])
def test_case_rk04_through_the_command_line(call: Call, tmp_path: Path, all_cameras_equal: bool) -> None:
    folder, content = case("rk04-cmc-same-camera")
    words = ["--ignore-same", "camera+label", "--distractor-labels", 0, "-k", "1,2", "-m", "cmc@1", "-m", "cmc@2"]
    words += ["-m", "map"]
    for side in ("query", "gallery"):
        columns = content["input"]["arrays"][side]
        cameras = [1] * len(columns["camera"]) if all_cameras_equal else columns["camera"]
        rows = [list(row) for row in zip(columns["identity"], cameras, strict=True)]
        words += [f"--{side}", folder / f"{side}_emb.npy"]
        words += [f"--{side}-labels", write_table(tmp_path / f"{side}.csv", ["label", "camera"], rows)]
    values_check, error_check = content["expected"]
    if all_cameras_equal:
        code, out, err = call("eval", *words)
        assert (code, out) == (3, "")
        for group in error_check["error_must_name"]:
            assert any(word in err.lower() for word in group)
        return
    found = values(call, "eval", *words)
    expected = values_check["values"] | values_check["counts"]
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=values_check["tolerance"])
    assert (found["recall@1"], found["recall@2"]) == (found["cmc@1"], found["cmc@2"])


def test_judged_pairs_reach_the_evaluation_of_a_manifest_and_of_embeddings(call: Call, tmp_path: Path) -> None:
    from PIL import Image

    for number, name in enumerate(["q", "near", "far"]):
        Image.new("L", (32, 32)).point(lambda _, n=number: 60 + 40 * n).save(tmp_path / f"{name}.png")
        with Image.open(tmp_path / f"{name}.png") as image:
            image.putpixel((number, number), 255)
            image.save(tmp_path / f"{name}.png")
    rows = [["q.png", "query"], ["near.png", "gallery"], ["far.png", "gallery"]]
    manifest = write_table(tmp_path / "list.csv", ["path", "role"], rows)
    qrels = write_table(tmp_path / "judged.csv", ["qid", "docid", "rel"], [["q.png", "far.png", 3]])
    code, _, err = call("eval", manifest, "--encoder", "hog")
    assert code == 3
    assert "no column 'label'" in err
    found = values(call, "eval", manifest, "--encoder", "hog", "--qrels", qrels, "-k", "1,2")
    assert (found["recall@2"], found["num_queries"], found["num_gallery"]) == (1, 1, 2)
    code, out, err = call("embed", manifest, "--encoder", "hog", "-o", tmp_path / "e.npz")
    assert code == 0
    assert "there is no column 'label'" in err
    query, gallery = out.split()
    assert values(call, "eval", "--query", query, "--gallery", gallery, "--qrels", qrels, "-k", "1,2")["recall@2"] == 1
    assert load_embeddings(query).embeddings.labels == ((),)
    with pytest.raises(RecallatkError, match="it has no label"):
        evaluate_embeddings(load_embeddings(query).embeddings, load_embeddings(gallery).embeddings)
