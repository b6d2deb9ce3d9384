"""Runs the checks of the acceptance cases the way a user would: files by the command line, arrays from Python.

Whatever a case says that is not understood here raises `NotUnderstoodError`: a check never passes unread.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from command_line import recallatk
from recallatk import (
    EmbeddingSet,
    EvalProtocol,
    Qrels,
    RankedLists,
    RecallatkError,
    Report,
    SampleSet,
    encode,
    evaluate_embeddings,
    evaluate_scores,
    load_dataset,
    load_report,
    recall_at_k,
    save_run,
)

CASES = Path(os.environ.get("RECALLATK_CASES") or Path(__file__).parents[2] / "shared" / "cases")

Case = dict[str, Any]
Check = dict[str, Any]

# A case's name for a metric -> ours.
METRICS = {
    **{name: name for name in ("recall", "cmc", "capped_recall", "map", "map_trapezoid", "mp", "r_precision")},
    "fraction_recall": "set_recall",
    "map@r": "map_r",
}

ADAPTER_KIND = "mmpretrain-compat"
"""Cases of the adapter for OpenMMLab: tests/test_openmmlab.py runs them, because they need torch."""

LEVELS = [
    ("easy", ["easy"], ["junk", "hard"]),
    ("medium", ["easy", "hard"], ["junk"]),
    ("hard", ["hard"], ["junk", "easy"]),
]

CHECK_KEYS = {
    *("check", "outcome", "with", "values", "exact", "tolerance", "counts", "excluded_queries"),
    *("error_must_name", "report_must_name"),
    *("known_wrong", "must_not", "also_acceptable"),  # prose, and numbers that `values` already shuts out
}


class NotUnderstoodError(Exception):
    """A case says something that this runner does not know how to do or to check."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one way of running a check gave: a report, bare values (of `recall_at_k`), a comparison, or an error.

    Outcomes of one `input` are of the same data, asked for in other ways or other orders.
    """

    values: Mapping[str, float] | None = None
    report: Report | None = None
    comparison: dict[str, Any] | None = None
    printed: str | None = None
    error: str | None = None
    input: int = 0


@functools.cache
def helper() -> Any:
    """The bank's own casebank.py."""
    spec = importlib.util.spec_from_file_location("casebank", CASES / "casebank.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def iter_checks() -> Iterator[tuple[Path, Case, Check]]:
    for folder, case in helper().iter_cases(CASES):
        for check in case["expected"]:
            if "trapezoid" in case["parameters"].get("metric", ""):  # its "map" is another number than the others' map
                check |= {
                    key: {name.replace("map", "map_trapezoid"): value for name, value in check[key].items()}
                    for key in ("values", "exact")
                }
            yield folder, case, check


def metric_of(name: str) -> str:
    """The metric of a value's name: "recall" of "recall@5", but "map@r" is one name."""
    stem, _, k = name.partition("@")
    return stem if k.isdigit() else name


def offered(values: Mapping[str, float]) -> dict[str, str]:
    """A case's names for values -> ours."""
    names = {}
    for name in values:
        if name in ("delta", "p_value", "only_A", "only_B2") or re.fullmatch(r"(A|B|B2)\.recall@1", name):
            names[name] = name  # of a comparison
            continue
        metric = metric_of(name)
        if metric not in METRICS:
            raise NotUnderstoodError(f"the value {name!r}")
        names[name] = METRICS[metric] + name.removeprefix(metric)
    return names


def run_check(folder: Path, case: Case, check: Check, work: Path, build: Callable[..., Path]) -> list[Outcome]:
    """Run a check in every way it asks for.

    Args:
        folder: the case's folder.
        case: case.json.
        check: one of its checks.
        work: an empty folder.
        build: called with the case's folder (and stages); gives the folder that its make.py filled.
    """
    unknown = set(check) - CHECK_KEYS
    if unknown:
        raise NotUnderstoodError(f"the keys {sorted(unknown)}")
    settings = {**case["parameters"], **check.get("with", {})}
    if case["kind"] == "compare-track":
        return list(run_comparison(folder, case, settings, check, work))
    choices = protocol_choices(settings)
    metrics = sorted(set(offered(check.get("values", {})).values()) - {f"recall@{k}" for k in choices["ks"]})
    if "stages" in case["input"].get("files", {}):
        runs = run_stages(folder, case, check, settings, choices, build)
    elif (folder / "make.py").exists() and "encoder" in settings:
        runs = run_images(build(folder), settings, choices, metrics, work)
    elif (folder / "make.py").exists() or case["kind"] == "embeddings-file":
        source = build(folder) if (folder / "make.py").exists() else folder
        runs = run_files(source, settings, choices, metrics, work)
    elif (folder / "scores.npy").exists():
        runs = run_scores(folder, case["input"]["arrays"], choices, metrics)
    elif case["kind"] == "numeric-input":
        runs = run_archives(folder, case["input"]["arrays"], settings, choices, metrics, work, check)
    else:
        runs = run_arrays(folder, case["input"]["arrays"], settings, choices, metrics, check)
    outcomes = list(runs)
    if settings:
        raise NotUnderstoodError(f"the settings {settings}")
    if not outcomes:
        raise NotUnderstoodError("nothing was run")
    return outcomes


def run_comparison(folder: Path, case: Case, settings: dict[str, Any], check: Check, work: Path) -> Iterator[Outcome]:
    """Saved runs, compared by the command: as it is and, where it refuses, also forced."""
    arrays = case["input"]["arrays"]
    runs = run_systems(folder, arrays, settings) if "A" in settings else run_queries(folder, arrays, settings)
    for name, report in runs.items():
        save_run(report, work / name)
    wanted = settings.pop("systems", ["A", "B"])
    known = {"test", "pairing", "queries"}  # prose
    if set(settings) - known:
        raise NotUnderstoodError(f"the settings {sorted(set(settings) - known)}")
    if {name.partition(".")[2] for name in check["values"]} == {"recall@1"} and "counts" not in check:
        yield Outcome(values={f"{name}.recall@1": report["recall@1"] for name, report in runs.items()})
        return
    result = recallatk("compare", *(work / name for name in wanted), "--all")
    forced = ["--force"] if result.code else []
    if result.code:
        assert result.code == 3
        assert result.err.count("\n") == 1
        yield Outcome(error=result.err)
        result = recallatk("compare", *(work / name for name in wanted), "--all", *forced)
    assert (result.code, result.err) == (0, "")
    verdict = result.out.splitlines()[1]
    if "must_not" in check:  # all of them: nothing is called better, and no number is missing
        assert not {"better", "worse"} & set(verdict.split())
        assert "nan" not in result.out.lower()
    record = json.loads(recallatk("compare", *(work / name for name in wanted), "--json", *forced).out)
    test = record["contrasts"][0]["test"]
    values = {f"{one['name']}.recall@1": one["values"]["recall@1"]["value"] for one in record["systems"]}
    values |= {"delta": -test["difference"], f"only_{wanted[0]}": test["losses"], f"only_{wanted[1]}": test["wins"]}
    for p in (test["p_value"], test["mcnemar"]["exact"]):  # with a label a query they are one test
        yield Outcome(values={**values, "p_value": p}, comparison=record, printed=result.out)


def run_queries(folder: Path, arrays: dict[str, Any], settings: dict[str, Any]) -> dict[str, Report]:
    """Runs from embeddings: every system has its own queries, and all have one gallery."""
    protocol = EvalProtocol(ks=settings.pop("ks"), similarity=settings.pop("similarity"))
    labels = arrays["gallery_labels"]
    gallery = EmbeddingSet(load(folder, "gallery_emb.npy"), labels, ids=[f"g{row}" for row in range(len(labels))])
    reports = {}
    for name in ("A", "B", "B2"):
        ids = arrays[name]["ids"]
        rows = load(folder, f"{name.lower()}_query_emb.npy")
        query = EmbeddingSet(rows, [arrays["labels_by_id"][one] for one in ids], ids=ids)
        reports[name] = evaluate_embeddings(query, gallery, protocol=protocol)
        hits = [float(hit) for hit in arrays[name]["hit@1"]]
        assert reports[name].queries["recall@1"].tolist() == hits
    return reports


def run_systems(folder: Path, arrays: dict[str, Any], settings: dict[str, Any]) -> dict[str, Report]:
    """Runs from scores that give these hits: one positive a query, and a negative ahead of it where it misses."""
    reports = {}
    for name in ("A", "B"):
        hits = settings.pop(name)
        labels = [f"label {row}" for row in range(len(hits))]
        query = SampleSet(labels, ids=[f"q{row}" for row in range(len(hits))])
        gallery = SampleSet([*labels, "other"], ids=[f"g{row}" for row in range(len(hits) + 1)])
        scores = np.hstack([np.eye(len(hits)), np.where(hits, 0.5, 2.0)[:, None]])
        reports[name] = evaluate_scores(scores, query, gallery, protocol=EvalProtocol(ks=(1,)))
        assert reports[name].queries["recall@1"].tolist() == hits
    return reports


def protocol_choices(settings: dict[str, Any]) -> dict[str, Any]:
    """The fields of EvalProtocol that settings ask for; what is understood is taken out of them."""
    choices = {field: settings.pop(field) for field in ("ks", "similarity") if field in settings}
    choices.setdefault("ks", EvalProtocol().ks)
    choices |= {field: settings.pop(field) for field in ("no_positive", "ties") if field in settings}
    meanings: dict[str, dict[Any, dict[str, str]]] = {
        "self_exclusion": {
            "by_id": {"exclude_self": "id"},
            "none": {"exclude_self": "none"},
            "the default for two different folders": {},
        },
        "exclude_duplicates": {True: {"exclude_self": "content"}},
        "camera_exclusion": {
            "remove gallery items with same identity AND same camera as the query": {"ignore_same": "camera+label"}
        },
        "positives": {
            "at least one shared label": {},  # what several labels a sample mean anyway
            "euclidean distance of coordinates <= 25 m": {"relevance": "radius", "radius": 25},
        },
        "definition": {"fraction": {}, "capped": {}},  # the names of the values say so too
    }
    if "protocol" in settings:  # of the Revisited Oxford and Paris sets
        settings.pop("metric")  # the names of the values say so too
        wanted = (settings.pop("protocol"), settings.pop("positives"), settings.pop("ignored"))
        if wanted not in LEVELS:
            raise NotUnderstoodError(f"the levels {wanted}")
        choices |= {"relevance": "qrels", "level": wanted[0]}
    for setting, known in meanings.items():
        if setting in settings:
            value = settings.pop(setting)
            if value not in known:
                raise NotUnderstoodError(f"{setting}={value!r}")
            choices |= known[value]
    return choices


def run_arrays(
    folder: Path,
    arrays: dict[str, Any],
    settings: dict[str, Any],
    choices: dict[str, Any],
    metrics: list[str],
    check: Check,
) -> Iterator[Outcome]:
    """Embeddings in memory: evaluate_embeddings(), and recall_at_k() where it can say the same."""
    order = settings.pop("gallery_order", "given")
    if order not in ("given", "reversed", "given and reversed"):
        raise NotUnderstoodError(f"gallery_order={order!r}")
    inputs = [take_input(folder, arrays, settings)]
    if check["outcome"] == "invariance" and "query_labels_const" in arrays:
        names = ("query_emb", "gallery_emb", "query_labels", "gallery_labels")
        const = {name: arrays.get(f"{name}_const", f"{name}_const.npy") for name in names}
        inputs.append(take_input(folder, arrays, const))
    for number, sides in enumerate(inputs):
        for reverse in {"given": [False], "reversed": [True], "given and reversed": [False, True]}[order]:
            query, gallery = (dict(side) for side in sides)
            if reverse:
                gallery = {column: reversed_rows(values) for column, values in gallery.items()}
            ways = [functools.partial(evaluate_sides, query, gallery, choices, metrics)]
            if query["ids"] is not None and query["ids"] == gallery["ids"]:
                ways.append(functools.partial(evaluate_sides, query, None, choices, metrics))
            plain = choices.keys() <= {"ks", "similarity", "no_positive", "exclude_self"} and not metrics
            if plain and choices.get("no_positive", "exclude") == "exclude":
                ways.append(functools.partial(short_cut, query, gallery, choices["ks"]))
            yield from (dataclasses.replace(in_python(way), input=number) for way in ways)


def take_input(folder: Path, arrays: dict[str, Any], settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Query and gallery: embeddings, labels, ids and groups."""
    if "emb.npy" in {file.name for file in folder.iterdir()}:  # one set on both sides
        one = {"emb": load(folder, "emb.npy"), "labels": arrays["labels"], "ids": arrays["ids"], "groups": {}}
        return one, one
    camera = settings.pop("camera", None)
    if camera not in (None, "set every query and gallery camera to 1"):
        raise NotUnderstoodError(f"camera={camera!r}")
    sides = []
    for side in ("query", "gallery"):
        emb = load(folder, settings.pop(f"{side}_emb", f"{side}_emb.npy"))
        own = arrays.get(side, {})
        groups = {}
        if "camera" in own:
            groups["camera"] = own["camera"] if camera is None else [1] * len(emb)
        labels = settings.pop(f"{side}_labels", None) or own.get("identity") or arrays.get(f"{side}_labels")
        positions = load(folder, f"{side}_xy.npy") if f"{side}_xy" in arrays else None
        if isinstance(labels, dict):
            labels = np.array(labels["data"], dtype=labels["dtype"])
        ids = arrays.get(f"{side}_ids")
        sides.append({"emb": emb, "labels": labels, "ids": ids, "groups": groups, "positions": positions})
    return sides[0], sides[1]


def load(folder: Path, name: str) -> Any:
    return np.load(folder / name, allow_pickle=False)


def reversed_rows(values: Any) -> Any:
    if isinstance(values, dict):
        return {column: reversed_rows(group) for column, group in values.items()}
    return None if values is None else values[::-1]


def evaluate_sides(
    query: dict[str, Any], gallery: dict[str, Any] | None, choices: dict[str, Any], metrics: list[str]
) -> Outcome:
    sets = [
        EmbeddingSet(**{"embeddings" if key == "emb" else key: column for key, column in side.items()}, name=name)
        for side, name in ((query, "query"), (gallery, "gallery"))
        if side is not None
    ]
    report = evaluate_embeddings(*sets, protocol=EvalProtocol(**choices), metrics=metrics)
    return Outcome(values=report, report=report, printed=report.text())


def run_scores(folder: Path, arrays: dict[str, Any], choices: dict[str, Any], metrics: list[str]) -> Iterator[Outcome]:
    """Judged pairs with levels, and the system's answer as a matrix of scores and as ranked lists."""
    scores = load(folder, "scores.npy")
    query, gallery = (
        SampleSet(None, ids=[f"{side}{row}" for row in range(n)]) for side, n in zip("qg", scores.shape, strict=True)
    )
    judged = [
        (f"q{row}", f"g{item}", level)
        for row, truth in enumerate(arrays["ground_truth"])
        for level, items in truth.items()
        for item in items
    ]
    queries, items, levels = zip(*judged, strict=True)
    qrels = Qrels(queries, items, np.ones(len(judged), dtype=np.int64), levels)
    ranked = [
        (f"q{row}", f"g{item}", -place)
        for row, found in enumerate(arrays["ranking"])
        for place, item in enumerate(found)
    ]
    queries, items, places = zip(*ranked, strict=True)
    for answer in (scores, RankedLists(queries, items, np.array(places, dtype=np.float64))):
        report = evaluate_scores(answer, query, gallery, protocol=EvalProtocol(**choices), qrels=qrels, metrics=metrics)
        yield Outcome(values=report, report=report, printed=report.text())


def short_cut(query: dict[str, Any], gallery: dict[str, Any], ks: Any) -> Outcome:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it warns of stands in the report, which is checked beside it
        values = recall_at_k(
            query["emb"], gallery["emb"], query["labels"], gallery["labels"], ks, query["ids"], gallery["ids"]
        )
    return Outcome(values=values)


def in_python(call: Callable[[], Outcome]) -> Outcome:
    try:
        return call()
    except RecallatkError as error:
        return Outcome(error=str(error))


def run_archives(
    folder: Path,
    arrays: dict[str, Any],
    settings: dict[str, Any],
    choices: dict[str, Any],
    metrics: list[str],
    work: Path,
    check: Check,
) -> Iterator[Outcome]:
    """Embeddings with labels and ids in .npz files; where an error is as good as a value, under both policies."""
    argv = []
    for side in ("query", "gallery"):
        columns = {name: arrays[f"{side}_{name}"] for name in ("labels", "ids") if f"{side}_{name}" in arrays}
        np.savez(
            work / f"{side}.npz", embeddings=load(folder, settings.pop(f"{side}_emb", f"{side}_emb.npy")), **columns
        )
        argv += [f"--{side}", str(work / f"{side}.npz")]
    policies = ("error", "skip") if check["outcome"] == "values-or-error" else ("error",)
    for policy in policies:
        yield evaluate_argv([*argv, "--on-error", policy], choices, metrics, work / policy)


def run_files(
    source: Path, settings: dict[str, Any], choices: dict[str, Any], metrics: list[str], work: Path
) -> Iterator[Outcome]:
    """Bare .npy files, with labels in files of their own."""
    argv = []
    for side in ("query", "gallery"):
        argv += [f"--{side}", str(source / settings.pop(f"{side}_emb", f"{side}_emb.npy"))]
        labels = source / f"{side}_labels.npy"
        if f"{side}_labels" in settings:
            labels = work / f"{side}_labels.json"
            labels.write_text(json.dumps(settings.pop(f"{side}_labels")), encoding="utf-8")
        argv += [f"--{side}-labels", str(labels)]
    # The tool is told how much memory it may take, and chooses its pieces from that.
    memory = {1000: "20MB", 4096: "100MB", 12167: "2GB"}
    sizes = settings.pop("chunk_size", None)
    for size in sizes or [None]:
        extra = [] if size is None else ["--memory", memory[size]]
        yield evaluate_argv([*argv, *extra], choices, metrics, work / f"run-{size}")


def run_images(
    data: Path, settings: dict[str, Any], choices: dict[str, Any], metrics: list[str], work: Path
) -> Iterator[Outcome]:
    """A folder or a manifest of images."""
    encoder = settings.pop("encoder")
    if encoder == "mean_rgb on all but the last image of each batch":
        text = "from encoders import mean_rgb\n\n\ndef encode(images):\n    return mean_rgb(images[:-1])\n"
        (work / "one_row_too_few.py").write_text(text, encoding="utf-8")
        sys.path.insert(0, str(work))
        spec = "one_row_too_few:encode"
    elif encoder.isidentifier():
        spec = f"encoders:{encoder}"
    else:
        raise NotUnderstoodError(f"encoder={encoder!r}")
    manifest = data / settings.pop("manifest", "good.csv" if (data / "good.csv").exists() else "manifest.csv")
    sides = {side: settings.pop(side, None) for side in ("query", "gallery")}
    if sides == {"query": "gallery folder", "gallery": "gallery folder"}:
        data = data / "gallery"
    elif any(sides.values()):
        raise NotUnderstoodError(f"sides {sides}")
    argv = [str(manifest if manifest.exists() else data), "--encoder", spec]
    argv += ["--on-error", settings.pop("bad_files", "error"), "--exif", settings.pop("exif", "apply")]
    sizes = settings.pop("batch_size", 32)
    for size in sizes if isinstance(sizes, list) else [sizes]:
        yield evaluate_argv([*argv, "--batch-size", str(size)], choices, metrics, work / f"run-{size}")


def run_stages(
    folder: Path,
    case: Case,
    check: Check,
    settings: dict[str, Any],
    choices: dict[str, Any],
    build: Callable[..., Path],
) -> Iterator[Outcome]:
    """Images that change between runs, encoded with one cache."""
    import encoders  # of the case bank

    settings.pop("cache")
    encoder = encoders.ENCODERS[settings.pop("encoder")]
    cache: dict[str, Any] = {}
    wanted = int(check["check"].removeprefix("stage ")[0])
    for stage in case["input"]["files"]["stages"]:
        if stage <= wanted:
            dataset = load_dataset(build(folder, stage))
            assert dataset.gallery is not None
            encoded = encode([dataset.query, dataset.gallery], encoder, cache=cache)
            report = evaluate_embeddings(*encoded.sets, protocol=EvalProtocol(**choices))
    yield Outcome(values=report, report=report, printed=report.text())


def evaluate_argv(argv: list[str], choices: dict[str, Any], metrics: list[str], run: Path) -> Outcome:
    """`recallatk eval` in this process; the report is read back from the run it wrote."""
    flags = ["-k", ",".join(map(str, choices["ks"]))]
    flags += [f"--{field.replace('_', '-')}={value}" for field, value in choices.items() if field != "ks"]
    flags += [part for metric in metrics for part in ("--metric", metric)]
    result = recallatk("eval", *argv, *flags, "--output", run)
    if result.code:
        assert result.code in (2, 3), result.err
        assert result.err.count("\n") == 1, f"an error is one line, not {result.err!r}"
        assert not result.out
        return Outcome(error=result.err)
    report = load_report(run)
    return Outcome(values=report, report=report, printed=result.out + result.err)


def make(folder: Path, out: Path, *stages: int) -> Path:
    """Run a case's make.py."""
    command = [sys.executable, str(folder / "make.py"), str(out), *map(str, stages)]
    subprocess.run(command, check=True, capture_output=True)
    return out
