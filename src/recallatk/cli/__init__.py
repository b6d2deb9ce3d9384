"""The command line: parses, calls one library verb, prints; the only place that prints or exits."""

# No `from __future__ import annotations`: the command line is made from these annotations.

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, ArgumentCollection, CycloptsError, Parameter, Token

from recallatk.cli.flags import (
    NO_EMBEDDINGS,
    NO_ENCODING,
    NO_OUTPUT,
    NO_PROTOCOL,
    NO_READING,
    OUTPUT_GROUP,
    Embeddings,
    Encoding,
    Many,
    Output,
    Protocol,
    Reading,
    expand_tokens,
    parse_bytes,
)
from recallatk.cli.printing import fail, print_comparison, print_table, progress, tell
from recallatk.types import ChoiceError, Dataset, EvalProtocol, RecallatkError

USAGE, DATA = 2, 3

app = App(
    name="recallatk",
    help="Exact recall@K for image retrieval: one number that can be trusted, repeated and defended.",
    help_on_error=False,
    default_parameter=Parameter(negative=()),
    version_flags=["--version"],
)


@app.command(name="eval")
def eval_(
    data: Path | None = None,
    /,
    *,
    encoder: Many = (),
    metric: Many = (),
    memory: str | None = None,
    protocol_file: Annotated[Path | None, Parameter(name="--protocol")] = None,
    protocol: Protocol = NO_PROTOCOL,
    embeddings: Embeddings = NO_EMBEDDINGS,
    reading: Reading = NO_READING,
    encoding: Encoding = NO_ENCODING,
    output: Output = NO_OUTPUT,
) -> None:
    """Evaluate: recall@K of an encoder on a folder or manifest, or of embeddings.

    Short forms: -k for --ks (-k 1,5,10), -m for --metric, -o for --output.

    Args:
        data: a folder with query/ and gallery/, a folder of class folders (leave-one-out), or a manifest.
        encoder: a name (see `recallatk encoders`) or module:attribute; several give one table.
        metric: metrics beside recall@k: set_recall@5, precision@1, mrr.
        memory: working memory for the ranking, such as 500MB; by default a quarter of what is free.
        protocol_file: a TOML file, or the record of an earlier run, whose protocol is used; flags given win.
    """
    budget = None if memory is None else parse_bytes(memory)
    if embeddings.query is not None or embeddings.gallery is not None:
        if data is not None or encoder:
            raise ChoiceError("give DATA with --encoder, or --query with embeddings, not both")
        jobs: Iterator[tuple[str, Any]] = iter([("embeddings", _load_embeddings(embeddings, reading))])
    else:
        jobs = _encode_jobs(data, encoder, reading, encoding, output)
    _evaluate(jobs, protocol, metric, budget, output, several=len(encoder) > 1)


@app.command
def embed(
    data: Path | None = None,
    /,
    *,
    encoder: str,
    output: Path,
    reading: Reading = NO_READING,
    encoding: Encoding = NO_ENCODING,
    quiet: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
) -> None:
    """Encode a folder or manifest and write the embeddings; prints the files written.

    Args:
        data: as for `recallatk eval`.
        encoder: a name (see `recallatk encoders`) or module:attribute.
        output: a .npy, .npz, .parquet or .safetensors file; query and gallery become NAME-query and NAME-gallery.
        quiet: no progress and no notes.
    """
    from recallatk.embeddings import check_target
    from recallatk.run import save_encoded

    check_target(output)
    jobs = _encode_jobs(data, (encoder,), reading, encoding, Output(quiet=quiet))
    for _, encoded in jobs:
        tell(encoded.provenance.notes, quiet=quiet)
        tell([f"skipped {item.item}: {item.reason}" for item in encoded.provenance.skipped], quiet=quiet)
        for file in save_encoded(encoded, output):
            print(file)


@app.command
def demo(*, encoder: str | None = None, quiet: bool = False) -> None:
    """Evaluate the embedded default encoder on the photos that come with the package.

    Args:
        encoder: another encoder; the default is lite0, or hog where onnxruntime is not installed.
        quiet: no progress and no notes.
    """
    from importlib.resources import as_file, files
    from importlib.util import find_spec

    chosen = encoder or "lite0"
    if encoder is None and find_spec("onnxruntime") is None:
        chosen = "hog"
        print("onnxruntime is not installed (pip install 'recallatk[onnx]'): using hog, not lite0", file=sys.stderr)
    with as_file(files("recallatk") / "assets" / "photos") as photos:
        jobs = _encode_jobs(photos, (chosen,), NO_READING, NO_ENCODING, Output(quiet=quiet))
        _evaluate(jobs, EvalProtocol(), (), None, Output(quiet=quiet), several=False)


@app.command
def info() -> None:
    """Versions, backends, cores and memory on this machine."""
    from recallatk.ranking import BACKENDS
    from recallatk.ranking.memory import default_memory
    from recallatk.run import describe_environment

    described = describe_environment()
    lines = {
        "recallatk": described["recallatk"],
        "python": described["python"],
        **described["packages"],
        "blas": "; ".join(" ".join(str(value) for value in pool.values()) for pool in described["blas"]) or "unknown",
        "backends": ", ".join(BACKENDS),
        "backend in use": "reference",
        "cores": described["cores"],
        "memory for ranking": f"{default_memory() / 1e9:.1f} GB",
        "system": described["system"],
    }
    for name, value in lines.items():
        print(f"{name}: {value}")


@app.command
def encoders() -> None:
    """The encoders that have a name, and the extra that each of them needs."""
    from recallatk.encoders import ENCODERS

    rows = [(name, entry.extra or "-", entry.summary) for name, entry in ENCODERS.items()]
    print_table(("encoder", "extra", "what it is"), [*rows, ("module:attribute", "-", "your own callable on a batch")])


@app.command
def datasets() -> None:
    """The layouts of DATA that are read."""
    from recallatk.datasets import LAYOUTS

    print_table(("layout", "what it is"), [(name, layout.summary) for name, layout in LAYOUTS.items()])


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 fine, 2 usage, 3 data; anything else is a traceback and our fault."""
    app.config = [_protocol_from_file]
    try:
        app(
            expand_tokens(sys.argv[1:] if argv is None else argv),
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
        fail("interrupted", 130)
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        sys.stderr.close()
        sys.exit(0)


def _protocol_from_file(_app: App, _commands: Any, arguments: ArgumentCollection) -> None:
    """Fill protocol flags that were not given from the file that --protocol names."""
    from recallatk.run import read_protocol

    by_name = {name: argument for argument in arguments for name in argument.names}
    source = by_name.get("--protocol")
    if source is None or not source.tokens:
        return
    path = source.tokens[0].value
    for field, value in read_protocol(Path(path)).items():
        argument = by_name[f"--{field.replace('_', '-')}"]
        if not argument.tokens:
            values = value if isinstance(value, list | tuple) else [value]
            for index, one in enumerate(values):
                argument.append(Token(keyword=argument.names[0], value=str(one), source=path, index=index))


def _encode_jobs(
    data: Path | None, specs: Sequence[str], reading: Reading, encoding: Encoding, output: Output
) -> Iterator[tuple[str, Any]]:
    """Load the data once, then encode it with each encoder in turn."""
    from recallatk.encoders import load_encoder
    from recallatk.images import DecodePolicy
    from recallatk.run import encode_dataset

    if not specs:
        raise ChoiceError("name an encoder with --encoder (see `recallatk encoders`), or give embeddings with --query")
    loaded = [(spec, load_encoder(spec)) for spec in specs]
    dataset = _load_dataset(data, reading)
    for spec, encoder in loaded:
        with progress(spec, quiet=output.quiet) as on_progress:
            encoded = encode_dataset(
                dataset,
                encoder,
                batch=encoding.batch_size,
                decode=encoding.hand_over == "pixels",
                policy=DecodePolicy(exif=encoding.exif),
                on_error=reading.on_error,
                on_progress=on_progress,
            )
        yield spec, encoded


def _load_dataset(data: Path | None, reading: Reading) -> Dataset:
    from recallatk.datasets import load_dataset, load_two_folders, sample_dataset

    folders = (reading.queries_folder, reading.gallery_folder)
    common: Any = {"label_from": reading.label_from, "label_separator": reading.label_separator}
    if folders[0] is not None and folders[1] is not None and data is None:
        dataset = load_two_folders(folders[0], folders[1], on_error=reading.on_error, **common)
    elif folders != (None, None):
        raise ChoiceError("--queries-folder and --gallery-folder belong together, and replace DATA")
    elif data is None:
        raise ChoiceError("name DATA: a folder with query/ and gallery/, a folder of class folders, or a manifest")
    else:
        dataset = load_dataset(data, layout=reading.layout, root=reading.root, on_error=reading.on_error, **common)
    return dataset if reading.limit is None else sample_dataset(dataset, reading.limit, seed=reading.seed)


def _load_embeddings(files: Embeddings, reading: Reading) -> Any:
    from recallatk.embeddings import load_embeddings
    from recallatk.run import combine_files

    if files.query is None:
        raise ChoiceError("--gallery needs --query beside it; one set alone is --query")
    choices: Any = {"on_error": reading.on_error, "label_separator": reading.label_separator}
    query = load_embeddings(files.query, labels=files.query_labels, name=f"query ({files.query.name})", **choices)
    if files.gallery is None or files.gallery.resolve() == files.query.resolve():
        return combine_files(query, None)
    name = f"gallery ({files.gallery.name})"
    return combine_files(query, load_embeddings(files.gallery, labels=files.gallery_labels, name=name, **choices))


def _evaluate(
    jobs: Iterator[tuple[str, Any]],
    protocol: EvalProtocol,
    metrics: Sequence[str],
    memory: int | None,
    output: Output,
    *,
    several: bool,
) -> None:
    """Evaluate each job, write its run and print: one report, or one table for several."""
    from recallatk.metrics import parse_metric
    from recallatk.run import check_run_folder, evaluate_encoded, save_run

    for text in metrics:
        parse_metric(text)
    if output.output is None and (output.save_embeddings or output.overwrite):
        raise ChoiceError("--save-embeddings and --overwrite need the folder of the run: --output DIR")
    if output.output is not None and not several:
        check_run_folder(output.output, overwrite=output.overwrite)
    reports = {}
    started = datetime.now(UTC)
    for spec, encoded in jobs:
        run = evaluate_encoded(encoded, protocol=protocol, metrics=metrics, memory=memory, started=started)
        tell(run.report.provenance.notes, quiet=output.quiet)
        if output.output is not None:
            folder = output.output / re.sub(r"[^\w.-]", "_", spec) if several else output.output
            check_run_folder(folder, overwrite=output.overwrite)
            save_run(run, folder, save_embeddings_too=output.save_embeddings)
        reports[spec] = run.report
        started = datetime.now(UTC)
    if output.json:
        records = [report.to_json() for report in reports.values()]
        print("[" + ",\n".join(records) + "]" if several else records[0])
    elif several:
        print_comparison(reports, percent=output.percent)
    else:
        print(next(iter(reports.values())).text(percent=output.percent))
