"""DeepFashion In-Shop clothes retrieval (Liu et al. 2016): a query photo is to find the item in the shop's gallery."""

from __future__ import annotations

from pathlib import Path

from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.files import Item, find_root, first_there, folder_of_pictures, image_set, read_lines
from recallatk.types import Dataset, OnError, RecallatkError
from recallatk.wording import counted

FOLDER = "In-shop Clothes Retrieval Benchmark"
LISTS = ("Eval/list_eval_partition.txt", "list_eval_partition.txt", "Anno/list_eval_partition.txt")
PICTURES = ("img", "Img/img")
HEADER = ("image_name", "item_id", "evaluation_status")
STATUSES = ("train", "query", "gallery")


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read the partition of In-Shop; the label is the item id, and ids are the image names of the list."""
    root = find_root(data, FOLDER, LISTS, PICTURES)
    file = first_there(root, *LISTS) or root / LISTS[0]
    rows, announced = _read_partition(file)
    sides = {status: [Item(name, item) for name, item, its in rows if its == status] for status in STATUSES}
    places = [place for place in ("", "Img", "img", "Img/img") if (root / place / "img").exists()]
    base = folder_of_pictures(
        root, (name for name, _, its in rows if its != "train"), *places
    )  # the list names img/...
    query, no_query = image_set(base, sides["query"], on_error=on_error, side="query")
    gallery, no_gallery = image_set(base, sides["gallery"], on_error=on_error, side="gallery")
    training = len(sides["train"])
    found = counted(len(rows), "row follows", "rows follow")
    return Dataset(
        query=query,
        gallery=gallery,
        root=base,
        skipped=(*no_query, *no_gallery),
        notes=(f"{counted(training, 'training image')} of the list left aside",) if training else (),
        warnings=()
        if announced in (None, len(rows))
        else (f"{file}: line 1 says {announced:,} images, and {found}; take the official file",),
    )


def _read_partition(file: Path) -> tuple[list[tuple[str, str, str]], int | None]:
    """Image name, item id and status of each row, and how many rows line 1 says there are."""
    rows: list[tuple[str, str, str]] = []
    named: set[str] = set()
    announced = None
    for where, line in read_lines(file):
        fields = line.strip().rsplit(None, 2)  # the name may hold blanks, what follows does not
        if tuple(fields) == HEADER:
            continue
        if len(fields) == 1 and fields[0].isdecimal() and not rows and announced is None:
            announced = int(fields[0])
            continue
        if len(fields) != len(HEADER) or fields[2] not in STATUSES:
            raise RecallatkError(
                f"{where} is not {', '.join(HEADER)} (one of {', '.join(STATUSES)}); take the official file"
            )
        if fields[0] in named:
            raise RecallatkError(f"{where}: {fields[0]} stands there twice; take the official file")
        named.add(fields[0])
        rows.append((fields[0], fields[1], fields[2]))
    return rows, announced


BENCHMARK = Benchmark(
    title="DeepFashion In-Shop",
    summary="DeepFashion In-Shop: clothes, the query images against the gallery images",
    load=load,
    files={
        "Eval/list_eval_partition.txt": "the number of images, a header, then image name, item id and status; it may "
        "also lie at the top or in Anno/",
        "img/ or Img/img/": "what Img/img.zip unpacks to, images of 256 x 256",
    },
    marks=(LISTS, PICTURES),
    parts={
        "test": Part(
            summary="the rows query against the rows gallery",
            counts={"queries": 14_218, "gallery": 12_612, "labels": 3_985},
            protocol={"ks": (1, 10, 20, 30, 40)},
            published=(
                PublishedRow(
                    "Proxy-Anchor, Inception-BN, 512 columns",
                    {
                        "recall@1": "91.9%",
                        "recall@10": "98.1%",
                        "recall@20": "98.7%",
                        "recall@30": "99.0%",
                        "recall@40": "99.1%",
                    },
                    "README of the Proxy-Anchor repository (CVPR 2020)",
                ),
                PublishedRow("Unicom, ViT-B/32, zero-shot", {"recall@1": "72.8%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-B/16, zero-shot", {"recall@1": "74.6%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-L/14, zero-shot", {"recall@1": "83.6%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow(
                    "Unicom, ViT-L/14 at 336, zero-shot", {"recall@1": "86.7%"}, "README of Unicom (ICLR 2023)"
                ),
                PublishedRow("Unicom, ViT-B/32, supervised", {"recall@1": "94.8%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-B/16, supervised", {"recall@1": "95.5%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-L/14, supervised", {"recall@1": "96.0%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow(
                    "Unicom, ViT-L/14 at 336, supervised", {"recall@1": "96.7%"}, "README of Unicom (ICLR 2023)"
                ),
            ),
        ),
    },
    traps=(
        "Query and gallery labels must be numbered by one table. Two tables give a recall near 0, which has been "
        "reported as a bug of the model.",
        "The evaluation code of Proxy-Anchor counts only negatives that are strictly nearer than the best positive, "
        "which is ties=optimistic; an encoder that maps all to one point is then perfect.",
        "img_highres.zip is for parsing; the retrieval set is img.zip. Numbers on the large images are others.",
        "A mirror on Hugging Face has 52,591 images, 121 fewer than the official 52,712.",
    ),
)
