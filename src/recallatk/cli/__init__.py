"""The command line: parses, calls one library verb, prints; the only place that prints or exits."""

# No `from __future__ import annotations`: the command line is made from these annotations.

import functools
import signal
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from recallatk.cli.cache import cache
from recallatk.cli.check import check
from recallatk.cli.cluster import (
    NO_CLUSTER,
    Cluster,
    Steps,
    parts_folder,
    print_plan_of_files,
    print_plan_of_images,
    progress_of,
    session,
    steps_of,
    tell_what_is_sent,
)
from recallatk.cli.compare import compare
from recallatk.cli.datasets import check_embeddings, datasets, part_of, published_of
from recallatk.cli.delivery import check_metrics, check_output, deliver
from recallatk.cli.filling import check_whole_numbers, fill_protocol
from recallatk.cli.flags import (
    NO_EMBEDDINGS,
    NO_ENCODING,
    NO_GATE,
    NO_INTERVALS,
    NO_OUTPUT,
    NO_PAGE,
    NO_PROTOCOL,
    NO_RANKING,
    NO_READING,
    OUTPUT_GROUP,
    PAGE_GROUP,
    Embeddings,
    Encoding,
    Gate,
    Intervals,
    Many,
    Output,
    PageContent,
    Protocol,
    Ranking,
    Reading,
    expand_tokens,
)
from recallatk.cli.gate import gate as gate_command
from recallatk.cli.gate import read_gate
from recallatk.cli.history import history
from recallatk.cli.info import info
from recallatk.cli.inputs import (
    encode_images,
    encode_sample,
    join,
    load_encoders,
    load_files,
    load_images,
    naming,
    read_qrels,
    with_qrels,
)
from recallatk.cli.page import check_page_file, page_of_each
from recallatk.cli.plan import plan
from recallatk.cli.printing import (
    DATA,
    INTERRUPTED,
    USAGE,
    fail,
    fail_for_room,
    forget_output,
    make_console,
    prepare_streams,
    print_table,
    tell,
    tell_notes,
    written_out,
)
from recallatk.cli.report import report as report_command
from recallatk.cli.score import LABELLED, score
from recallatk.cli.verify import verify
from recallatk.cli.views import Views, each_view, plan_runs, views_asked
from recallatk.types import ChoiceError, Ended, EvalProtocol, RecallatkError


def _version() -> str:
    from importlib.metadata import version

    return version("recallatk")


def _default_shown(value: Any) -> str | None:
    """What the help says of a default: nothing where it is that something is not there."""
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or None
    return None if value is None or value is False else str(value)


app = App(
    name="recallatk",
    help="Exact recall@K for image retrieval: one number that can be trusted, repeated and defended.",
    help_on_error=False,
    default_parameter=Parameter(negative=(), show_default=_default_shown),
    version=_version,
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,
)
app.command(score)
app.command(check)
app.command(verify)
app.command(compare)
app.command(history)
app.command(gate_command)
app.command(plan)


@app.command(name="eval")
def eval_(
    data: Path | None = None,
    /,
    *,
    encoder: Many = (),
    metric: Many = (),
    protocol_file: Annotated[Path | None, Parameter(name="--protocol")] = None,
    protocol: Protocol = NO_PROTOCOL,
    intervals: Intervals = NO_INTERVALS,
    embeddings: Embeddings = NO_EMBEDDINGS,
    reading: Reading = NO_READING,
    encoding: Encoding = NO_ENCODING,
    ranking: Ranking = NO_RANKING,
    cluster: Cluster = NO_CLUSTER,
    gate: Gate = NO_GATE,
    published: bool = False,
    output: Output = NO_OUTPUT,
    report: Annotated[Path | None, Parameter(group=PAGE_GROUP)] = None,
    page: PageContent = NO_PAGE,
) -> None:
    """Evaluate: recall@K of an encoder on a folder or manifest, or of embeddings.

    Short forms: -k for --ks (-k 1,5,10), -m for --metric, -o for --output.

    Args:
        data: a folder with query/ and gallery/, a folder of class folders (leave-one-out), a manifest, or a benchmark;
            beside --query it says what the rows of the embeddings are.
        encoder: a name (see `recallatk encoders`) or module:attribute; several give one table.
        metric: metrics beside recall@k: set_recall@5, map, mrr (see `recallatk metrics`).
        protocol_file: a TOML file, or the record of an earlier run, whose protocol is used; flags given win.
        published: hold the numbers against the rows published for the benchmark that --layout names.
        report: write an HTML page that shows the number and the queries; several encoders have a file each.
    """
    started = datetime.now(UTC)
    views = views_asked(reading, embeddings)
    check_page_file(report, page, overwrite=output.overwrite)
    engine = ranking.arguments()
    part = part_of(reading.layout, reading.part)
    metric = metric or (part.metrics if part is not None else ())
    compare_rows = published_of(reading) if published else None
    names = check_metrics(metric)
    conditions = read_gate(gate, (*(f"recall@{k}" for k in protocol.ks), *names))
    labelled = protocol.relevance in LABELLED
    if embeddings.query is not None or embeddings.gallery is not None:
        if encoder:
            raise ChoiceError("give DATA with --encoder, or embeddings with --query, not both")
        cluster.refuse_gpus("embeddings")
        planned = plan_runs(("embeddings",), views)
        folders = check_output(output, planned.folders, report=report)
        dataset = None if data is None else load_images(data, reading, labels_required=labelled)
        make_page = page_of_each(report, page, names=tuple(planned.runs), output=output, dataset=dataset)
        load = {"labels_required": labelled and data is None, "in_place": cluster.run_on is not None}
        files = load_files(embeddings, reading, memory=engine["memory"], **load)
        tell_what_is_sent(cluster, files, quiet=output.quiet)
        if cluster.dry_run:
            return print_plan_of_files(cluster, files.query, files.gallery, engine)
        steps = steps_of(cluster, len(planned.runs))
        joined = check_embeddings(files, reading) if dataset is None else join(files, dataset, reading)
        jobs: Iterator[tuple[str, Any]] = iter([("embeddings", joined)])
    else:
        loaded = load_encoders(encoder, encoding)
        planned = plan_runs(tuple(loaded), views)
        folders = check_output(output, planned.folders, report=report)
        dataset = load_images(data, reading, labels_required=labelled)
        make_page = page_of_each(
            report, page, names=tuple(planned.runs), output=output, dataset=dataset, exif=encoding.exif
        )
        if cluster.dry_run:
            sample = functools.partial(encode_sample, loaded, reading, encoding)
            return print_plan_of_images(cluster, dataset, sample, engine)
        elsewhere = cluster.elsewhere(several=len(loaded) > 1)
        steps = steps_of(cluster, len(loaded) + len(planned.runs))
        jobs = encode_images(dataset, loaded, reading, encoding, output, elsewhere, steps)
    if reading.qrels is not None:
        qrels = read_qrels(reading.qrels, protocol)
        jobs = ((spec, with_qrels(encoded, qrels, reading.qrels)) for spec, encoded in jobs)
    jobs = each_view(jobs, planned)
    several = len(planned.runs) > 1
    of = "" if planned.views else "encoder "
    choices = {**engine, "intervals": intervals, "cluster": cluster.run_on}
    with session(cluster, engine), cluster.keeping(encoding.cache()) as choices["kept"]:
        runs = _evaluate(
            jobs, protocol, metric, choices, started, several=several, of=of, quiet=output.quiet, steps=steps
        )
        deliver(
            runs,
            output,
            folders,
            several=several,
            side_by_side=Views(planned, output) if views else None,
            conditions=conditions,
            make_page=make_page,
            more_lines=compare_rows,
        )
    return None


@app.command
def embed(
    data: Path | None = None,
    /,
    *,
    encoder: str,
    output: Path,
    overwrite: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
    reading: Reading = NO_READING,
    encoding: Encoding = NO_ENCODING,
    cluster: Cluster = NO_CLUSTER,
    quiet: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
) -> None:
    """Encode a folder or manifest and write the embeddings; prints the files written.

    Args:
        data: as for `recallatk eval`.
        encoder: a name (see `recallatk encoders`) or module:attribute.
        output: a .npy, .npz, .parquet, .safetensors or .h5 file; query and gallery become NAME-query and NAME-gallery.
            With --cluster a folder, or an address such as s3://bucket/folder, for query/ and gallery/ in parts.
        overwrite: write over files that are there already.
        quiet: no progress and no notes.
    """
    from recallatk.embeddings import check_target, parts
    from recallatk.run import embedding_files, save_encoded

    folder = parts_folder(output) if cluster.run_on is not None else None
    if folder is None:
        check_target(output)
    if reading.qrels is not None:
        raise ChoiceError("--qrels belongs to `recallatk eval`; embeddings are written without it")
    encoders = load_encoders((encoder,), encoding)
    if len(encoders) > 1:
        raise ChoiceError(f"--encoder {encoder} is a series of {len(encoders)}; embed with one of them at a time")
    dataset = load_images(data, reading, labels_required=False)  # labels are asked for when they are used
    if cluster.dry_run:
        sample = functools.partial(encode_sample, encoders, reading, encoding)
        return print_plan_of_images(cluster, dataset, sample, Ranking().arguments())
    for file in embedding_files(output, alone=dataset.gallery is None) if folder is None else ():
        check_target(file, overwrite=overwrite)
    elsewhere = cluster.elsewhere(folder, overwrite=overwrite and folder is not None)
    steps = steps_of(cluster, 1)
    for _, encoded in encode_images(dataset, encoders, reading, encoding, Output(quiet=quiet), elsewhere, steps):
        if isinstance(encoded, RecallatkError):
            raise encoded
        tell_notes(encoded.provenance, quiet=quiet)
        tell([f"warning: {warning}" for warning in encoded.provenance.warnings])
        if folder is not None:
            sides = ("query", "gallery")[: 1 + (encoded.gallery is not None)]
            print("\n".join(parts.inside(folder, side) for side in sides))
            continue
        for file in save_encoded(encoded, output):
            print(file)
    return None


@app.command
def demo(*, encoder: str | None = None, quiet: bool = False) -> None:
    """Evaluate the encoder that comes with the package on the photos that come with it.

    Args:
        encoder: another encoder; the default is lite0, or hog where onnxruntime is not installed.
        quiet: no progress and no notes.
    """
    from importlib.resources import as_file, files
    from importlib.util import find_spec

    started = datetime.now(UTC)
    chosen = encoder or "lite0"
    if encoder is None and find_spec("onnxruntime") is None:
        chosen = "hog"
        tell(["onnxruntime is not installed (pip install 'recallatk[onnx]'): using hog, not lite0"])
    with as_file(files("recallatk") / "assets" / "photos") as photos:
        output = Output(quiet=quiet)
        loaded = load_encoders((chosen,))
        dataset = load_images(photos, NO_READING, labels_required=True)
        jobs = encode_images(dataset, loaded, NO_READING, NO_ENCODING, output)
        deliver(_evaluate(jobs, EvalProtocol(), (), {}, started, several=False), output, {}, several=False)


app.command(cache)
app.command(info)


@app.command
def encoders() -> None:
    """The encoders that have a name, and the extra that each of them needs."""
    from recallatk.encoders import ENCODERS, SCHEMES

    rows = [(name, entry.extra or "-", entry.summary) for name, entry in ENCODERS.items()]
    rows += [(f"{name}:{entry.target}", entry.extra, entry.summary) for name, entry in SCHEMES.items()]
    print_table(("encoder", "extra", "what it is"), [*rows, ("module:attribute", "-", "your own callable on a batch")])


@app.command
def metrics() -> None:
    """The metrics that --metric takes."""
    from recallatk.metrics import METRICS

    spelling = {"always": "{0}@k", "maybe": "{0} or {0}@k", "never": "{0}"}
    rows = [(spelling[metric.cutoff].format(name), metric.summary) for name, metric in METRICS.items()]
    print_table(("metric", "what it is"), rows)


# Behind eval: of an unknown command's neighbours only the first eight are named.
app.command(datasets)
app.command(report_command)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 fine, 2 usage, 3 data, 130 interrupted, 143 ended; a traceback is our fault."""
    prepare_streams()
    app.config = [fill_protocol, check_whole_numbers]
    try:
        with written_out():
            app(
                expand_tokens(sys.argv[1:] if argv is None else argv),
                console=make_console(),
                exit_on_error=False,
                print_error=False,
                result_action="return_value",
            )
    except CycloptsError as error:
        fail(" ".join(str(error).split()), USAGE)
    except ChoiceError as error:
        fail(str(error), USAGE)
    except RecallatkError as error:
        fail(str(error), DATA)
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
    except Ended as end:
        fail(f"ended by {signal.Signals(int(end.code or 0) - 128).name}", int(end.code or 0))
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        forget_output()
        sys.exit(0)
    except OSError as error:
        fail_for_room(error)


def _evaluate(
    jobs: Iterator[tuple[str, Any]],
    protocol: EvalProtocol,
    metrics: Sequence[str],
    choices: dict[str, Any],
    started: datetime,
    *,
    several: bool,
    of: str = "encoder ",
    quiet: bool = False,
    steps: Steps | None = None,
) -> Iterator[tuple[str, Any, Any]]:
    """Evaluate each job when its turn comes: (name, report or the error that it came to, embeddings)."""
    from recallatk.run import evaluate_encoded

    for spec, encoded in jobs:
        report = encoded
        if not isinstance(encoded, RecallatkError):
            try:
                title = f"ranking {spec}" if several else "ranking"
                with naming(spec, several=several, of=of), progress_of(steps, title, quiet=quiet) as told:
                    shared = {"metrics": metrics, "started": started, "on_progress": told}
                    report = evaluate_encoded(encoded, protocol=protocol, **shared, **choices)
            except ChoiceError:  # a flag is wrong: it is so for all of them
                raise
            except RecallatkError as error:
                report = error
        yield spec, report, encoded
        started = datetime.now(UTC)
