"""Tokyo 24/7 (Torii et al. 2015): photographs of telephones by day, sunset and night against street views."""

from __future__ import annotations

from pathlib import Path

from recallatk.datasets.benchmarks.dbstruct import Side, find_dbstruct, folder_of, read_dbstruct
from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.files import Item, image_set, read_lines
from recallatk.datasets.tables import as_number
from recallatk.datasets.walk import walk_images
from recallatk.types import Dataset, OnError, RecallatkError
from recallatk.wording import counted

QUERIES = "247query_subset_v2"
ZONE = 54


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read the gallery of tokyo247.mat and the queries with the .csv beside each; positions in UTM, zone 54."""
    root, path = find_dbstruct(data, "tokyo247.mat", "tokyo247", "Tokyo247", "tokyo")
    listed, gallery = read_dbstruct(path)
    stored = tuple(_as_stored(name) for name in gallery.names)
    below = folder_of(root, stored, "", "tokyo247", "images", "database", "database_gsv_vga")
    if not (root / below / stored[0]).is_file() and (root / below / gallery.names[0]).is_file():
        stored = gallery.names  # a copy that kept the names of the list
    gallery_items = Side(stored, gallery.positions).items(below)
    images, no_image = image_set(root, gallery_items, on_error=on_error, side="gallery image")
    items, notes = _read_queries(root, listed)
    queries, no_query = image_set(root, items, on_error=on_error, side="query")
    return Dataset(query=queries, gallery=images, root=root, skipped=(*no_query, *no_image), notes=tuple(notes))


def _as_stored(name: str) -> str:
    """The list says .jpg, and the archives hold .png."""
    return f"{name.removesuffix('.jpg')}.png" if name.endswith(".jpg") else name


def _read_queries(root: Path, listed: Side) -> tuple[list[Item], list[str]]:
    """The photographs of the folder of queries, where a .csv beside each says where it was taken."""
    folders = (QUERIES, f"{QUERIES}/{QUERIES}", f"tokyo247/{QUERIES}", f"queries/{QUERIES}", f"query/{QUERIES}")
    photos = {name: [photo.below for photo in walk_images(root / name).images] for name in folders}
    found = next((name for name in folders if any("/" not in photo for photo in photos[name])), None)
    if found is None:
        raise RecallatkError(
            f"{root}: no folder {QUERIES} with photographs in it; unpack {QUERIES}.zip there, which has a .csv beside "
            "each of them"
        )
    names = [photo for photo in photos[found] if "/" not in photo]
    places = {name: (root / found / name).with_suffix(".csv") for name in names}
    notes = []
    positions: dict[str, tuple[float, float]] = {}
    if any(place.is_file() for place in places.values()):
        for name, place in places.items():
            if not place.is_file():
                raise RecallatkError(f"{place}: no such file; it says where {name} was taken, so complete the copy")
            positions[name] = _read_place(place)
    else:
        known = {Path(name).name: metres for name, metres in zip(listed.names, listed.positions, strict=True)}
        absent = [name for name in names if name not in known]
        if absent:
            raise RecallatkError(
                f"{root / found}: no .csv beside the photographs, and tokyo247.mat says nothing about {absent[0]}; "
                f"unpack {QUERIES}.zip again"
            )
        positions = {name: (float(known[name][0]), float(known[name][1])) for name in names}
        notes.append("the positions of the queries are those of tokyo247.mat, as no .csv lies beside them")
    outside = [photo for photo in photos[found] if "/" in photo]
    if outside:
        notes.append(f"{counted(len(outside), 'image')} in folders of {found} left aside (such as {outside[0]})")
    return [Item(f"{found}/{name}", position=positions[name]) for name in names], notes


def _read_place(path: Path) -> tuple[float, float]:
    """The first line of a query's file: its name, latitude and longitude in degrees, and more."""
    where, line = next(read_lines(path), (f"{path}: line 1", ""))
    fields = [as_number(field.strip()) for field in line.split(",")[1:3]]
    if len(fields) < 2 or fields[0] is None or fields[1] is None:
        raise RecallatkError(
            f"{where} is {line!r}, which should begin with name,latitude,longitude; take the official file"
        )
    latitude, longitude = fields[0], fields[1]
    if not (-90 <= latitude <= 90 and abs(longitude - (6 * ZONE - 183)) <= 10):
        raise RecallatkError(
            f"{where}: latitude {latitude:g} and longitude {longitude:g} are not in Tokyo; take the official file"
        )
    import utm

    easting, northing, *_ = utm.from_latlon(latitude, longitude, force_zone_number=ZONE)
    return float(easting), float(northing)


BENCHMARK = Benchmark(
    title="Tokyo 24/7",
    summary="Tokyo 24/7: photographs by day, sunset and night, a hit is a street view within 25 m",
    load=load,
    files={
        "tokyo247.mat": "the dbStruct that lists the gallery, here or in datasets/",
        "03814/ to 03829/": "the gallery, as .png (the list says .jpg); here or in tokyo247/",
        f"{QUERIES}/": "the queries: 00001.jpg and so on, with 00001.csv beside each (name, latitude, longitude, ...)",
    },
    parts={
        "test": Part(
            summary="every query against every street view within 25 m, one hit an image and not a panorama (no "
            "spatial suppression); the gallery is said to have 75,984 images, which is not checked",
            counts={"queries": 315},
            protocol={
                "ks": (1, 5, 10, 20),
                "relevance": "radius",
                "radius": 25.0,
                "no_positive": "miss",
            },
            published=(
                PublishedRow(
                    "CosPlace, ResNet-101, 2048 columns, no spatial suppression, queries made smaller by the formatter",
                    {"recall@1": "88.6%", "recall@5": "95.9%", "recall@10": "96.5%"},
                    "the authors of CosPlace (CVPR 2022)",
                ),
            ),
        ),
    },
    traps=(
        "There are two numbers. OpenIBL keeps one view of each panorama before it counts (spatial suppression of the "
        "first 12 x N): SFRS has 85.4, 91.1 and 93.3 % so. This layout counts every view, as CosPlace and the scripts "
        "of VPR-methods-evaluation do; give suppressed lists to `recallatk score`.",
        "The formatter of VPR-datasets-downloader makes the queries smaller (480 pixels) and encodes them again. Its "
        "copy is --layout vpr, and its recall differs from that on the original photographs.",
        "The list of the gallery says .jpg where the archives hold .png.",
        "The positions of the queries are in degrees in the .csv files, and are converted to UTM in zone 54. Views at "
        "the border of 25 m may fall on the other side of it with another conversion.",
    ),
)
