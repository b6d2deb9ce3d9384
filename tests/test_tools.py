"""The tools that rebuild the assets: their readers, on tiny files made here."""

from __future__ import annotations

import collections
import importlib
import pickle
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

TOOLS = Path(__file__).parents[1] / "tools"
ASSETS = Path(__file__).parents[1] / "src" / "recallatk" / "assets"


@pytest.fixture
def tool(monkeypatch):
    """Import a module of the tools folder, which is no package."""
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module


# --- weights in torch's old format


class GlobalName:
    """Pickled as the bare name of something that is not installed, as torch's classes are in its files."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Tensor:
    def __init__(self, storage: tuple, *shape_and_place: object) -> None:
        self.arguments = (storage, *shape_and_place)


class TorchPickler(pickle._Pickler):
    """Writes the opcodes that torch's pickler wrote (protocol 2), without torch."""

    def persistent_id(self, value):
        return value if isinstance(value, tuple) and value[:1] == ("storage",) else None

    def save(self, value, save_persistent_id=True):
        if isinstance(value, GlobalName):
            self.write(b"c" + f"{value.module}\n{value.name}\n".encode())
        elif isinstance(value, Tensor):
            self.save(GlobalName("torch._utils", "_rebuild_tensor_v2"))
            self.save((*value.arguments, False, collections.OrderedDict()))
            self.write(b"R")
        else:
            super().save(value, save_persistent_id)


def storage(kind: str, key: str, length: int) -> tuple:
    return ("storage", GlobalName("torch", kind), key, "cpu", length, None)


def write_legacy(
    path: Path, state: object, storages: dict[str, np.ndarray], magic: int = 0x1950A86A20F9469CFC6C
) -> Path:
    with path.open("wb") as file:
        for value in (magic, 1001, {"little_endian": True}, state, list(storages)):
            TorchPickler(file, 2).dump(value)
        for values in storages.values():
            file.write(struct.pack("<q", values.size) + values.tobytes())
    return path


def test_legacy_weights_are_read_with_their_shapes_strides_offsets_and_types(tool, tmp_path):
    floats, counts = np.arange(10, dtype="<f4"), np.array([7], dtype="<i8")
    first, second = storage("FloatStorage", "a", 10), storage("LongStorage", "b", 1)
    state = collections.OrderedDict(
        whole=Tensor(first, 0, (2, 3), (3, 1)),
        turned=Tensor(first, 4, (2, 3), (1, 2)),
        scalar=Tensor(second, 0, (), ()),
    )
    path = write_legacy(tmp_path / "w.pth", state, {"a": floats, "b": counts})

    tensors = tool("legacy_pth").read_legacy_pth(path)

    assert list(tensors) == ["whole", "turned", "scalar"]
    assert tensors["whole"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensors["turned"].tolist() == [[4, 6, 8], [5, 7, 9]]
    assert tensors["scalar"] == 7
    assert [t.dtype for t in tensors.values()] == [np.float32, np.float32, np.int64]


def test_a_pickle_that_asks_for_code_is_refused_before_it_runs(tool, tmp_path):
    path = write_legacy(tmp_path / "w.pth", collections.OrderedDict(evil=GlobalName("os", "system")), {})
    with pytest.raises(pickle.UnpicklingError, match=r"os\.system"):
        tool("legacy_pth").read_legacy_pth(path)


def test_another_format_is_refused(tool, tmp_path):
    path = write_legacy(tmp_path / "w.pth", collections.OrderedDict(), {}, magic=1)
    with pytest.raises(ValueError, match="legacy format"):
        tool("legacy_pth").read_legacy_pth(path)


@pytest.mark.parametrize("place", [(5, (2, 3), (3, 1)), (0, (11,), (1,)), (-1, (1,), (1,))])
def test_a_tensor_outside_its_storage_is_refused(tool, tmp_path, place):
    state = collections.OrderedDict(x=Tensor(storage("FloatStorage", "a", 10), *place))
    path = write_legacy(tmp_path / "w.pth", state, {"a": np.zeros(10, "<f4")})
    with pytest.raises(ValueError, match="outside its storage"):
        tool("legacy_pth").read_legacy_pth(path)


def test_weights_cut_off_in_a_storage_are_refused(tool, tmp_path):
    state = collections.OrderedDict(x=Tensor(storage("FloatStorage", "a", 10), 0, (10,), (1,)))
    path = write_legacy(tmp_path / "w.pth", state, {"a": np.zeros(10, "<f4")})
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match="another number"):
        tool("legacy_pth").read_legacy_pth(path)


# --- Qt resources


def make_resources(tree: dict, version: int, flags: int = 0) -> bytes:
    """A .rcc file: nested dicts are folders, bytes are files."""
    names, data, nodes = bytearray(), bytearray(), []

    def place(node: object, name: str) -> tuple:
        name_at = len(names)
        names.extend(struct.pack(">HI", len(name), 0) + name.encode("utf-16-be"))
        if isinstance(node, dict):
            return name_at, node
        body = struct.pack(">I", len(node)) + zlib.compress(node) if flags & 1 else node
        data_at = len(data)
        data.extend(struct.pack(">I", len(body)) + body)
        return name_at, data_at

    level = [place(tree, "")]
    while level:  # children of one folder lie side by side, a level after the other
        first, following = len(nodes) + len(level), []
        for name_at, content in level:
            if isinstance(content, dict):
                nodes.append(struct.pack(">IHII", name_at, 2, len(content), first + len(following)))
                following += [place(node, name) for name, node in content.items()]
            else:
                nodes.append(struct.pack(">IHHHI", name_at, flags, 0, 0, content))
        level = following
    body = b"".join(node + (bytes(8) if version > 1 else b"") for node in nodes)
    start = 20 if version < 3 else 24
    header = struct.pack(">4s4I", b"qres", version, start, start + len(body), start + len(body) + len(data))
    return header + bytes(start - 20) + body + bytes(data) + bytes(names)


TREE = {"images": {"tools": {"README": b"text", "päd.webp": b"\0\1\2"}, "empty": {}}, "top.txt": b"x" * 1000}


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("flags", [0, 1], ids=["plain", "zlib"])
def test_qt_resources_are_read_with_their_paths(tool, version, flags):
    assert tool("qt_resource").read_resources(make_resources(TREE, version, flags)) == {
        "images/tools/README": b"text",
        "images/tools/päd.webp": b"\0\1\2",
        "top.txt": b"x" * 1000,
    }


def test_what_the_resource_reader_does_not_know_is_refused(tool):
    read = tool("qt_resource").read_resources
    with pytest.raises(ValueError, match="not a Qt resource"):
        read(b"PK\3\4" + bytes(30))
    with pytest.raises(ValueError, match="version 9"):
        read(make_resources({}, 9))
    with pytest.raises(ValueError, match="Zstandard"):
        read(make_resources(TREE, 3, flags=4))


# --- photos

README = """Copyright: Ann, 2019
Source: https://example.org/a
License: CC0-1.0
Files:
measuringTape1.webp
measuringTape2.webp

Copyright: Ben
Source: https://example.org/b
License: CC-BY-SA 4.0
Files:
hammer1.webp

Copyright: Cleo
Source: https://example.org/c
License: Public Domain
Files:
notInThePackage.webp
"""


def test_only_free_photos_are_kept_under_tidy_names_with_their_credits(tool):
    extract = tool("extract_photos")
    folder = f"{extract.IMAGES}tools/"
    resources = {
        f"{folder}{name}": name.encode() for name in ("measuringTape1.webp", "measuringTape2.webp", "hammer1.webp")
    }
    photos, credits_csv = extract.free_photos({**resources, f"{folder}README": README.encode()})
    assert photos == {
        "measuring_tape/measuring_tape1.webp": b"measuringTape1.webp",
        "measuring_tape/measuring_tape2.webp": b"measuringTape2.webp",
    }
    assert credits_csv.splitlines() == [
        "path,label,licence,author,source",
        'measuring_tape/measuring_tape1.webp,measuring_tape,CC0-1.0,"Ann, 2019",https://example.org/a',
        'measuring_tape/measuring_tape2.webp,measuring_tape,CC0-1.0,"Ann, 2019",https://example.org/a',
    ]


def test_the_shipped_photos_equal_themselves_and_every_change_is_named(tool):
    differences = tool("extract_photos").differences
    photos = {path.relative_to(ASSETS / "photos").as_posix(): path.read_bytes() for path in ASSETS.glob("photos/*/*")}
    credits_csv = (ASSETS / "CREDITS.csv").read_text(encoding="utf-8")
    assert len(photos) == 138
    assert differences(photos, credits_csv, ASSETS) == []

    changed = {**photos, "cup/cup.webp": b"other", "new/new.webp": b""}
    del changed["pan/pan.webp"]
    assert differences(changed, credits_csv + "x", ASSETS) == [
        "not in the package: pan/pan.webp",
        "not shipped: new/new.webp",
        "other bytes: cup/cup.webp",
        "CREDITS.csv has another content",
    ]


# --- the model


def test_a_folded_batch_norm_computes_what_the_two_layers_did(tool):
    pytest.importorskip("onnx", reason="the tool that builds the model needs onnx")
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(3, 2, 1, 1)), "bn.weight": rng.normal(size=3), "bn.bias": rng.normal(size=3)}
    weights |= {"bn.running_mean": rng.normal(size=3), "bn.running_var": rng.uniform(0.5, 2, size=3)}
    x = rng.normal(size=2)

    kernel, bias = tool("build_lite0").folded(weights, "w", "bn")

    y = weights["w"][:, :, 0, 0] @ x
    normed = (y - weights["bn.running_mean"]) / np.sqrt(weights["bn.running_var"] + 1e-3)
    expected = normed * weights["bn.weight"] + weights["bn.bias"]
    assert np.allclose(kernel[:, :, 0, 0] @ x + bias, expected, rtol=1e-5)


def test_models_are_compared_by_graph_constants_and_output(tool):
    onnx = pytest.importorskip("onnx", reason="the tool that builds the model needs onnx")
    build = tool("build_lite0")
    shipped = build.SHIPPED.read_bytes()
    model = onnx.load_from_string(shipped)
    model.producer_name = "somebody else"
    assert build.differences(model.SerializeToString(), shipped) == []

    bias = next(constant for constant in model.graph.initializer if constant.name == "c_48_b")
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + 1, "c_48_b"))
    graph, output = build.differences(model.SerializeToString(), shipped)
    assert graph == "the constant c_48_b differs"
    assert output.startswith("the embeddings differ by up to")


def test_the_tools_import_nothing_of_torch():
    names = {
        line.split()[1].split(".")[0]
        for path in TOOLS.glob("*.py")
        for line in path.read_text().splitlines()
        if line.startswith(("import ", "from "))
    }
    assert "torch" not in names
    assert names - set(sys.stdlib_module_names) == {
        *("numpy", "onnx", "recallatk", "rich"),
        *("legacy_pth", "qt_resource", "written_pages"),
    }
