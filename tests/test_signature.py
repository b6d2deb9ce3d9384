"""The signature: its grammar, its hashes as published vectors, and which part each change moves."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import struct
import unicodedata
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recallatk import signature
from recallatk.evaluation import evaluate_embeddings
from recallatk.report import Provenance, Report
from recallatk.signature import KEYS, PROTOCOL_KEYS, Side, Signature, escape_part
from recallatk.signature.numbers import Numbers
from recallatk.types import EmbeddingSet, EvalProtocol, Qrels, RecallatkError, each_label

VALUE = re.compile(r"([A-Za-z0-9._,+/@=-]|%[0-9A-F]{2})+")


def rows(labels, ids, **columns):
    return EmbeddingSet(np.ones((len(labels), 1)), labels, ids=ids, **columns)


# Published vectors


def sides():
    def sha256(text):
        return hashlib.sha256(text.encode()).hexdigest()

    gallery = rows(["C", "A", "B"], ["img/c1.jpg", "img/a1.jpg", "img/b1.jpg"],
                   content=[sha256(f"gallery-{x}1") for x in "cab"])  # fmt: skip
    query = rows(
        ["Z", "A", "B"], ["img/qz.jpg", "img/qa.jpg", "img/qb.jpg"], content=[sha256(f"query-{x}") for x in "zab"]
    )
    return [Side("q", query), Side("g", gallery)]


def partition(both):
    return signature.relevance_hash(both, [[side.samples.labels for side in both]])


def test_img_hashes_roles_ids_and_bytes():
    assert signature.content_hash(sides()) == "17a04388b02590c768c4496e35b6c00267e23f305faab5f37ad7efdefb3663e3"


def test_labels_hashes_roles_ids_and_labels():
    assert signature.label_hash(sides()) == "6e1106c722bcf40c809e97b742dc4d7d8429b42f7761dec60f435d225c900adc"


def test_lab_survives_new_names_and_labels_does_not():
    assert partition(sides()) == "dd7d5774b3f2ec4a97f6a723337c0e23fbc5b6c5452235cf4bfb260452874736"
    renamed = [Side("g", rows(["7", "3", "11"], ["img/a1.jpg", "img/b1.jpg", "img/c1.jpg"])),
               Side("q", rows(["7", "3", "0"], ["img/qa.jpg", "img/qb.jpg", "img/qz.jpg"]))]  # fmt: skip
    assert partition(renamed) == partition(sides())
    assert signature.label_hash(renamed).startswith("72aec520ce23")


def test_emb_hashes_little_endian_float32_in_the_order_of_the_ids():
    expected = "41d7b7a534ed2f672e3d49721f4e4b0ac96207dfc86370c6db8ef606baf1dd30"
    for dtype in ("<f4", ">f4", "f8"):
        given_rows = np.array([[0.6, 0.8], [1, 0], [0, 1]], dtype=np.float32).astype(dtype)
        one = EmbeddingSet(given_rows, list("aab"), ids=["z", "x", "y"])
        assert signature.embedding_hash([Side("g", one)], [one.embeddings]) == expected


def test_pre_hashes_canonical_json():
    steps = {
        "std": [0.5, 0.5, 0.5],
        "scale": "1/255",
        "resize": {"size": 256, "interp": "bicubic", "edge": "short", "antialias": True},
        "mean": [0.5, 0.5, 0.5],
        "decode": {"mode": "RGB", "lib": "pillow", "exif": False},
        "crop": {"size": [224, 224], "kind": "center"},
    }
    assert signature.json_hash(steps) == "5dd29a8daed016bd600c7d82c238c488880269c73197cf947cc73c952cd22c4e"


def test_res_hashes_the_first_ranks():
    expected = "37f7fc1e69d4e74a957e2680932b56ff8b4e38b4813f67d3e6833bd08735f72e"
    assert signature.first_ranks_hash(np.array([1, 3, 0])) == expected


def test_no_two_names_share_a_line():
    cells = [("x", "a\tb"), ("x\ta", "b"), ("x", "a\\tb"), ("x\n", "ab"), ("x", "a\nb"), ("x\r", "ab"), ("x\\n", "ab")]
    assert len({signature.label_hash([Side("g", rows([label], [name]))]) for name, label in cells}) == len(cells)
    several = [[["a", "b"]], [["a\tb"]], [["a", "b", "c"]], [[]]]
    assert len({signature.label_hash([Side("g", rows(labels, ["x"]))]) for labels in several}) == len(several)


def test_composed_and_decomposed_ids_have_one_hash():
    both = [[Side("g", rows(["a", "b"], [f"{e}/1", "x"]))] for e in ("\u00e9", "e\u0301")]
    assert signature.label_hash(both[0]) == signature.label_hash(both[1])
    assert partition(both[0]) == partition(both[1])


@pytest.mark.parametrize("content", [None, ["", "1f"]], ids=["none", "one-unknown"])
def test_bytes_that_are_not_all_known_have_no_hash(content):
    assert signature.content_hash([Side("g", rows(["a", "b"], ["x", "y"], content=content))]) is None


@pytest.mark.parametrize(("labels", "ids"), [(["\udce9", "\udce9"], ["x", "y"]), (["a", "a"], ["\udce9", "y"])])
def test_names_that_are_no_unicode_can_be_evaluated(labels, ids):
    # What os.listdir gives for a file name that is no UTF-8.
    alone = rows(labels, ids, same=["\udce8", ""], groups={"camera": ["\udce9"] * 2})
    assert evaluate_embeddings(alone)["recall@1"] == 1.0
    assert "\\udce9" in alone.ids[0] + alone.labels[0]
    assert (alone.same[0], alone.groups["camera"][1]) == ("\\udce8", "\\udce9")


# Every hash of lines, spelled out


def spelled_out(lines):
    """The rule of the module's first paragraph: lines of (role, name, cells) in UTF-8, sorted, hashed."""
    ordered = sorted((role.encode(), name.encode(), cells.encode()) for role, name, cells in lines)
    return hashlib.sha256(b"".join(b"\t".join(line) + b"\n" for line in ordered)).hexdigest()


def in_a_line(text):
    for raw, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(raw, escaped)
    return unicodedata.normalize("NFC", text)


def name_of(samples, row):
    if samples.ids is None:
        return hashlib.sha256(struct.pack(f"<{samples.embeddings.shape[1]}f", *samples.embeddings[row])).hexdigest()
    return in_a_line(samples.ids[row])


def numbered(rows_by_name):
    """The cells of (role, name, label cell, literal cell), each label by the number of its first appearance."""
    seen = {}
    for role, name, cell, literal in sorted(rows_by_name, key=lambda r: (r[0], r[1].encode(), r[2], r[3])):
        numbers = ",".join(str(seen.setdefault(label, len(seen))) for label in cell)
        yield (
            role,
            name,
            numbers + "\t" + in_a_line(json.dumps(list(literal), separators=(",", ":"), ensure_ascii=False)),
        )


NAMES = st.text(st.sampled_from("aAb\t\n\r\\/\x01e\u0301\u00e9\U0001f600"), min_size=1, max_size=3)
SETS = st.tuples(
    st.lists(st.tuples(st.integers(1, 3), st.lists(NAMES, max_size=3)), min_size=1, max_size=9),
    st.one_of(st.none(), st.lists(NAMES, min_size=9, max_size=9, unique=True)),
)


@given(SETS, SETS, st.booleans(), st.sampled_from([1, 2, 2**14]))
def test_lines_are_hashed_as_the_rule_says_whatever_the_names(query, gallery, alone, at_a_time):
    with mock.patch("recallatk.signature.sides.LINES_A_BLOCK", at_a_time):
        check_lines(query, gallery, alone=alone)


def check_lines(query, gallery, *, alone):
    # Rows of equal values have one name without ids, and so have ids that differ in composition only.
    made = []
    for drawn, ids in (query, gallery):
        embeddings = [[1.0, value, 0.5] for value, _ in drawn]
        labels = [label for _, label in drawn]
        made.append(EmbeddingSet(embeddings, labels, ids=ids and ids[: len(drawn)], content=["1f"] * len(drawn)))
    first = Side("g", made[1])
    sides = [first, Side("q", made[1], twin=first) if alone else Side("q", made[0])]
    known = [
        (side.role, name_of(side.samples, row), row, side.samples) for side in sides for row in range(len(side.samples))
    ]
    labels = [(role, name, "\t".join(map(in_a_line, s.labels[row]))) for role, name, row, s in known]
    assert signature.label_hash(sides) == spelled_out(labels)
    assert signature.content_hash(sides) == spelled_out((role, name, "1f") for role, name, _, _ in known)
    literal = [(f"x{row}", "\t") for _, _, row, _ in known]
    cells = [(role, name, s.labels[row], extra) for (role, name, row, s), extra in zip(known, literal, strict=True)]
    first_query = len(sides[0].samples)
    column = [[each_label(label) for _, _, label, _ in own] for own in (cells[:first_query], cells[first_query:])]
    extra = [literal[:first_query], literal[first_query:]]
    assert signature.relevance_hash(sides, [column], [extra]) == spelled_out(numbered(cells))


VALUES = st.lists(st.one_of(st.sampled_from(["a", "b", ""]), st.tuples(st.sampled_from("abc"))), max_size=9)


@given(VALUES, VALUES)
def test_values_are_numbered_as_if_all_were_remembered(gallery, query):
    def side(role, values):
        return Side(role, rows(["x"] * len(values), [f"{row}" for row in range(len(values))]))

    column = [gallery, query]
    seen = {}
    expected = [[",".join(str(seen.setdefault(v, len(seen))) for v in cell if v) for cell in cells] for cells in column]
    numbers = Numbers.of([side("g", gallery), side("q", query)], column)
    assert [numbers.texts(place, cells) for place, cells in enumerate(column)] == expected


def test_ids_take_no_room_while_they_are_numbered():
    ids = [f"image {row}" for row in range(100)]
    alone = rows(["a"] * len(ids), ids)
    gallery = Side("g", alone)
    numbers = Numbers.of([gallery, Side("q", alone, twin=gallery)], [ids, ids])
    assert [numbers.texts(place, ids) for place in (0, 1)] == [[str(row) for row in range(100)]] * 2
    assert not numbers._numbers


@pytest.mark.parametrize("ids", [None, ["z", "x", "y"]])
def test_a_set_alone_is_hashed_in_both_roles(ids):
    alone = EmbeddingSet([[1, 2], [3, 4], [0, 1]], list("aab"), ids=ids)
    gallery = Side("g", alone)
    twins, apart = [gallery, Side("q", alone, twin=gallery)], [Side("g", alone), Side("q", alone)]
    assert signature.label_hash(twins) == signature.label_hash(apart)
    assert partition(twins) == partition(apart)
    hashed = [signature.embedding_hash(sides, [alone.embeddings] * 2) for sides in (twins, apart)]
    assert hashed[0] == hashed[1]


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=9), st.lists(st.integers(-1, 3), min_size=1, max_size=9))
def test_equal_rows_are_counted_by_their_bits(query, gallery):
    def side(role, values):
        return Side(role, EmbeddingSet([[1.0, -0.0 if value < 0 else value] for value in values], ["a"] * len(values)))

    equal = sum(value in gallery for value in query)  # -1 stands for minus zero, whose bits differ from those of zero
    assert signature.count_equal_rows(side("g", gallery), side("q", query)) == equal


# Grammar


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("1,5,10", "1,5,10"),
        ("camera+label", "camera+label"),
        ("A.z_0/9@=-", "A.z_0/9@=-"),
        ("a|b:c", "a%7Cb%3Ac"),
        ("50%", "50%25"),
        ("a b\tc\n", "a%20b%09c%0A"),
        ("\u00e9", "%C3%A9"),
        ("", "na"),
    ],
)
def test_bytes_outside_the_grammar_are_escaped(value, escaped):
    assert escape_part(value) == escaped


@given(
    st.dictionaries(
        st.sampled_from(KEYS), st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
    )
)
def test_a_signature_survives_printing_and_parsing(values):
    made = Signature.of(values)
    assert list(made.parts) == list(KEYS)
    assert all(VALUE.fullmatch(value) for value in made.parts.values())
    assert Signature.parse(str(made)) == made
    assert Signature.parse(f"  {made}\n") == made
    assert len(str(made).splitlines()) == 1


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=2, max_size=2, unique=True))
def test_different_values_stay_different(values):
    assert escape_part(values[0]) != escape_part(values[1])


LINE = str(Signature.of({"k": "1,5", "sim": "cosine", "v": "0.1.0"}))


@pytest.mark.parametrize(
    "text",
    ["", "k:1", LINE.replace("k:", "K:"), LINE.replace("|v:0.1.0", ""), f"{LINE}|x:1", "|".join(LINE.split("|")[::-1]),
     f"{LINE}|v:0.1.0", LINE.replace("|", " | ")],
)  # fmt: skip
def test_keys_that_are_missing_unknown_or_out_of_order_are_refused(text):
    with pytest.raises(RecallatkError, match="no signature"):
        Signature.parse(text)


@pytest.mark.parametrize("part", ["sim", "sim:", "sim:a b", "sim:a:b", "sim:a%2", "sim:a%2f", "sim:\u00e9"])
def test_a_part_that_is_no_key_and_value_is_refused(part):
    with pytest.raises(RecallatkError, match="no signature"):
        Signature.parse(LINE.replace("sim:cosine", part))


def test_equal_protocol_ids_mean_equal_protocol_and_data_parts():
    values = dict.fromkeys(KEYS, "x")
    plain = Signature.of(values)
    moved = {key: Signature.of({**values, key: "y"}) for key in KEYS}
    assert {key for key in KEYS if moved[key].run_id != plain.run_id} == set(KEYS)
    assert {key for key in KEYS if moved[key].protocol_id == plain.protocol_id} == {"k", "pre", "w", "emb", "ci", "v"}
    assert re.fullmatch("[0-9a-f]{12}", plain.protocol_id)
    # The ids are plain hashes of what is printed.
    assert plain.run_id == hashlib.sha256(str(plain).encode()).hexdigest()[:12]
    kept = "|".join(p for p in str(plain).split("|") if p.split(":")[0] not in {"k", "pre", "w", "emb", "ci", "v"})
    assert plain.protocol_id == hashlib.sha256(kept.encode()).hexdigest()[:12]


# What moves what


def both(seed=0, **changes):
    rng = np.random.default_rng(seed)
    made = []
    for role, n in (("q", 6), ("g", 8)):
        columns = {
            "labels": [*"aabbcz"] if role == "q" else [*"aabbccdd"],
            "ids": [f"{role}{i}" for i in range(n)],
            "same": [f"{role}{i}" for i in range(n)],
            "groups": {"camera": [str(i % 2) for i in range(n)], "city": ["x"] * n},
            "content": [f"{role}-{i}" for i in range(n)],
        }
        columns |= changes.get(role, {})
        made.append(EmbeddingSet(columns.pop("embeddings", rng.normal(size=(n, 4))), **columns))
    return made


def evaluate(query_and_gallery, protocol=EvalProtocol(), **provenance) -> Report:  # noqa: B008  # frozen
    known = {"fingerprint": "0f1e2d3c4b5a6978", "preprocessing": {"size": 224}, "decode": {"mode": "RGB"}, **provenance}
    return evaluate_embeddings(*query_and_gallery, protocol=protocol, provenance=Provenance(**known))


def moved(a: Report, b: Report) -> set[str]:
    return {key for key in KEYS if a.signature.parts[key] != b.signature.parts[key]}


PLAIN = evaluate(both())

FIELDS = {
    "ks": ((1, 2), {"k"}),
    "similarity": ("dot", {"sim"}),
    "junk_labels": (("d",), {"rel"}),
    "distractor_labels": (("d",), {"rel"}),
    "exclude_self": ("none", {"self", "rel"}),
    "ignore_same": ("camera+label", {"ign", "rel", "n"}),
    "relevance": ("labels", {"rel"}),
    "no_positive": ("miss", {"nopos", "n"}),
    "ties": ("pessimistic", {"ties"}),
    "average": ("macro", {"avg"}),
}
QUALIFIERS = {"radius", "min_grade", "level"}
"""They move `rel` where relevance looks at them: tested below."""


def test_every_field_of_the_protocol_moves_a_part():
    assert set(FIELDS) | QUALIFIERS == {field.name for field in dataclasses.fields(EvalProtocol)}
    parts = [field.metadata["part"] for field in dataclasses.fields(EvalProtocol) if "part" in field.metadata]
    assert tuple(parts) == PROTOCOL_KEYS
    assert len(set(parts)) == len(parts)
    assert all(VALUE.fullmatch(value) for value in PLAIN.signature.parts.values())


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_moves_its_part(field):
    value, expected = FIELDS[field]
    changed = evaluate(both(), dataclasses.replace(EvalProtocol(), **{field: value}))
    assert moved(PLAIN, changed) - {"n", "ci"} == expected - {"n"}  # other queries, other clusters
    assert (changed.signature.protocol_id == PLAIN.signature.protocol_id) == (field == "ks")
    assert changed.signature.run_id != PLAIN.signature.run_id


def test_the_radius_moves_the_rule():
    def near(radius, x=0.0):
        places = {role: {"positions": [[x, i] for i in range(n)]} for role, n in (("q", 6), ("g", 8))}
        return evaluate(both(**places), EvalProtocol(relevance="radius", radius=radius))

    close, wide, wider = near(1), near(25), near(25.0000001)
    assert moved(close, wide) - {"n"} == moved(wide, wider) == moved(wide, near(25, x=1.0)) == {"rel"}
    assert wide.signature.parts["rel"].startswith("radius@25-")


def test_the_least_grade_the_level_and_the_judged_pairs_move_the_rule():
    def judged(grades, items=("g0", "g3"), **choices):
        qrels = Qrels(("q0", "q1"), items, np.array(grades), ("easy", "hard"))
        query, gallery = both()
        return evaluate_embeddings(query, gallery, protocol=EvalProtocol(relevance="qrels", **choices), qrels=qrels)

    one, two, other = judged([2, 2]), judged([2, 2], min_grade=2), judged([2, 1])
    assert moved(one, two) == moved(one, other) == {"rel"}
    assert moved(one, judged([2, 2], items=("g0", "g4"))) == {"rel"}
    assert two.signature.parts["rel"].startswith("qrels@2-")
    medium = judged([2, 2], level="medium")
    assert moved(one, medium) == {"rel"}
    assert medium.signature.parts["rel"].startswith("qrels/medium-")


def test_columns_and_labels_have_no_order():
    assert EvalProtocol(ignore_same="label+camera+label") == EvalProtocol(ignore_same="camera+label")
    assert EvalProtocol(junk_labels=("b", "a", "a")) == EvalProtocol(junk_labels=("a", "b"))
    assert EvalProtocol(junk_labels="a,b").relevance_rule != EvalProtocol(junk_labels=("a", "b")).relevance_rule


def test_an_unknown_cell_is_no_common_one():
    # Two rows of an unknown camera are ignored for nobody, two rows of camera 0 are.
    def cameras(value):
        groups = {"camera": [value, *"11111"], "city": ["x"] * 6}
        return evaluate(
            both(q={"groups": groups}, g={"groups": {"camera": [value, *"2222222"]}}),
            EvalProtocol(ignore_same="camera"),
        )

    assert moved(cameras(""), cameras("0")) - {"n"} == {"rel"}


CAMERAS = {"groups": {"camera": ["0", "1", "1", "1", "0", "1"], "city": ["x"] * 6}}
CITIES = {"groups": {"camera": [str(i % 2) for i in range(6)], "city": ["x", "y"] * 3}}

DATA = {
    "a label to another class": ({"q": {"labels": [*"abbbcz"]}}, {}, {"rel", "lab"}),
    "a label to a new class": ({"q": {"labels": [*"aabbce"]}}, {}, set()),  # z becomes e: a new name
    "every label has a new name": ({"q": {"labels": [*"112239"]}, "g": {"labels": [*"11223344"]}}, {}, set()),
    "a gallery label": ({"g": {"labels": [*"aabbcccd"]}}, {}, {"rel", "lab"}),
    "a group nobody uses": ({"q": CITIES}, {}, set()),
    "the group that is ignored": ({"q": CAMERAS}, {"ignore_same": "camera"}, {"rel"}),
    "a group beside the one that is ignored": ({"q": CITIES}, {"ignore_same": "camera"}, set()),
    "what is the same image": ({"q": {"same": ["g0", "q1", "q2", "q3", "q4", "q5"]}}, {}, {"rel"}),
    "what is the same image, unused": ({"q": {"same": ["g0", *"12345"]}}, {"exclude_self": "none"}, set()),
    "an id": ({"q": {"ids": ["q0", "q1", "q2", "q3", "q4", "q9"]}}, {}, {"rel", "lab", "img"}),
    "the bytes of an image": ({"g": {"content": [f"new-{i}" for i in range(8)]}}, {}, {"img"}),
    "bytes are not known": ({"g": {"content": None}}, {}, {"img"}),
}


@pytest.mark.parametrize("change", DATA)
def test_a_change_of_the_data_moves_the_parts_that_depend_on_it(change):
    columns, fields, expected = DATA[change]
    protocol = EvalProtocol(**fields)
    plain, changed = evaluate(both(), protocol), evaluate(both(**columns), protocol)
    assert moved(plain, changed) - {"n"} == expected
    assert (plain.hashes["labels"] != changed.hashes["labels"]) == (
        any("labels" in side or "ids" in side for side in columns.values())
    )


def test_what_is_the_same_image_moves_the_signature_of_leave_one_out():
    # "rel: a hash of all that relevance used": two rows of one image leave each other's ranking.
    def alone(same):
        query, _ = both()
        return evaluate([dataclasses.replace(query, same=same)])

    one, other = alone(["1", "2", "3", "4", "5", "6"]), alone(["1", "1", "3", "4", "5", "6"])
    assert one.num_evaluated != other.num_evaluated
    assert "rel" in moved(one, other)


def test_embeddings_weights_and_preprocessing_move_their_own_parts():
    assert moved(PLAIN, evaluate(both(seed=1))) == {"emb"}
    assert moved(PLAIN, evaluate(both(), fingerprint="beef" * 16)) == {"w"}
    assert moved(PLAIN, evaluate(both(), preprocessing={"size": 256})) == {"pre"}
    assert moved(PLAIN, evaluate(both(), decode={"mode": "L"})) == {"pre"}
    assert moved(PLAIN, evaluate(both(), encoder="other", notes=("a",), data={"b": 1}, environment={"c": 1})) == set()
    assert PLAIN.signature.parts["w"] == "0f1e2d3c4b5a"
    assert evaluate(both(), fingerprint="color-histogram-1").signature.parts["w"] == "color-histogram-1"
    long = [evaluate(both(), fingerprint="a-name-that-is-as-long-as-" + end).signature.parts["w"] for end in "xy"]
    assert all(re.fullmatch("[0-9a-f]{12}", part) for part in long)
    assert long[0] != long[1]
    unknown = evaluate(both(), fingerprint=None, preprocessing=None)
    assert (unknown.signature.parts["pre"], unknown.signature.parts["w"]) == ("na", "na")


def test_res_tells_two_runs_with_other_ranks_apart():
    assert PLAIN.hashes["res"] == evaluate(both()).hashes["res"]
    assert PLAIN.hashes["res"] != evaluate(both(seed=1)).hashes["res"]
    ranks = np.where(PLAIN.queries["has_positive"], PLAIN.queries["negatives_ahead"] + 1, 0)
    assert PLAIN.hashes["res"] == signature.first_ranks_hash(ranks)
