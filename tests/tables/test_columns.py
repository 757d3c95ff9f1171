"""What columns become, and that scikit-learn would have made the same of them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MultiLabelBinarizer, OneHotEncoder, StandardScaler

from dropnode.errors import ConfigError, TableError
from dropnode.tables import Encoders
from dropnode.tables.column_encoders import Numbers, Vectors
from dropnode.tables.columns import Roles, fit_columns
from dropnode.tables.encoders import are_sparse, joined
from dropnode.tables.problems import Problems
from dropnode.tables.structure import Structure
from dropnode.tables.table import Table, common_type


def table_of(plain_text: bool = False, **columns: list[Any]) -> Table:
    """A table as a file gives it; with ``plain_text``, as CSV does."""
    made = {
        name: pa.chunked_array([pa.array(values, pa.string() if plain_text else None)])
        for name, values in columns.items()
    }
    return Table("nodes.csv", made, plain_text)


def fit(table: Table, **roles: Any) -> tuple[Encoders, dict[str, str]]:
    """Return the encoders of all columns, and what every column became."""
    problems = Problems()
    columns, reports = fit_columns(table, [], Roles.of(**roles), problems)
    problems.check()
    blocks = [encoder.transform(table, problems) for encoder in columns]
    sparse = are_sparse(blocks) if blocks else False
    return Encoders("", tuple(columns), sparse=sparse), {r.column: r.became for r in reports}


def encoded(encoders: Encoders, table: Table) -> np.ndarray:
    problems = Problems()
    matrix = encoders.encode(table, None, problems)
    problems.check()
    return matrix.toarray() if sp.issparse(matrix) else matrix


@pytest.mark.parametrize("plain_text", [False, True])
def test_numbers_are_standardised(plain_text: bool) -> None:
    values = [3.5, -2.0, None, 1e4, 7.0, None]
    given = [None if v is None else str(v) for v in values] if plain_text else values
    table = table_of(plain_text, x=given, y=given[::-1])
    encoders, _ = fit(table)
    array = np.array([values, values[::-1]], dtype=float).T
    imputed = SimpleImputer(add_indicator=True).fit_transform(array)
    scaled = StandardScaler().fit(array).transform(imputed[:, :2])
    expected = np.column_stack([scaled[:, 0], imputed[:, 2], scaled[:, 1], imputed[:, 3]])
    np.testing.assert_allclose(encoded(encoders, table), expected, rtol=1e-5, atol=1e-6)


def test_numbers_of_every_size_are_encoded() -> None:
    table = table_of(a=[1e308, -1e308, 0.0], b=[1e-300, 2e-300, 3e-300], c=[5.0, None, 5.0])
    encoders, _ = fit(table)
    found = encoded(encoders, table)
    np.testing.assert_allclose(found[:, 0], np.sqrt(1.5) * np.array([1, -1, 0]), rtol=1e-6)
    np.testing.assert_allclose(found[:, 1], np.sqrt(1.5) * np.array([-1, 0, 1]), rtol=1e-6)
    assert found[:, 2:].tolist() == [[0, 0], [0, 1], [0, 0]]
    with pytest.raises(TableError, match="row 1, column b: 1e\\+30 is too far from the other"):
        encoded(encoders, table_of(a=[0.0], b=[1e30], c=[5.0]))


def test_zeros_and_ones_stay_as_they_are() -> None:
    table = table_of(plain_text=True, a=["0", "1", "1"], b=["0", None, "1"])
    encoders, told = fit(table)
    assert told == {"a": "zeros and ones", "b": "zeros and ones, and whether one is missing"}
    assert encoded(encoders, table).tolist() == [[0, 0, 0], [1, 0, 1], [1, 1, 0]]
    assert encoders.scaling == "auto"


def test_categories_are_those_of_a_one_hot_encoder() -> None:
    table = table_of(a=["u", "v", None, "u", "v"], b=[True, None, False, True, True])
    encoders, told = fit(table)
    assert told == {"a": "2 categories", "b": "2 categories"}
    oracle = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    oracle.fit([["u", "false"], ["v", "true"]])
    rows = [["u", "true"], ["v", "?"], ["?", "false"], ["u", "true"], ["v", "true"]]
    np.testing.assert_array_equal(encoded(encoders, table), oracle.transform(rows))
    # A new category is unknown, and all spellings of booleans are one.
    new = table_of(plain_text=True, a=["w", "v"], b=["True", "FALSE"])
    assert encoded(encoders, new).tolist() == [[0, 0, 0, 1], [0, 1, 1, 0]]


@pytest.mark.parametrize("plain_text", [False, True])
def test_a_mark_on_some_rows_is_a_category_and_one_on_all_is_nothing(plain_text: bool) -> None:
    marks = ["x", None, "x", None]
    table = table_of(plain_text, some=marks, every=["x"] * 4)
    encoders, told = fit(table)
    assert told == {"some": "1 categories", "every": "left out: all rows are equal"}
    assert encoded(encoders, table).ravel().tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("plain_text", [False, True])
def test_lists_are_those_of_a_binarizer(plain_text: bool) -> None:
    lists = [["x", "y"], [], ["z"], ["y", "y"]]
    given = (
        ["|".join(each) or None for each in lists] if plain_text else [*lists[:1], None, *lists[2:]]
    )
    table = table_of(plain_text, tags=given)
    encoders, told = fit(table, lists="tags")
    assert told == {"tags": "3 items of lists"}
    expected = MultiLabelBinarizer().fit_transform(lists)
    np.testing.assert_array_equal(encoded(encoders, table), expected)
    assert encoded(encoders, table_of(tags=[["new", "z"]])).tolist() == [[0, 0, 1]]


def test_lists_of_whole_numbers_of_different_lengths_are_items() -> None:
    table = table_of(codes=[[3, 10], [3], []])
    encoders, told = fit(table)
    assert told == {"codes": "2 items of lists"}
    assert encoded(encoders, table).tolist() == [[1, 1], [0, 1], [0, 0]]


def test_vectors_are_used_as_they_are() -> None:
    vectors = [[0.5, -1.0, 100.0], [2.0, 0.25, 0.0]]
    table = table_of(v=vectors)
    encoders, told = fit(table)
    assert told == {"v": "vectors of 3 numbers, as they are"}
    assert encoded(encoders, table).tolist() == vectors
    with pytest.raises(TableError) as caught:
        encoded(encoders, table_of(v=[[1.0, 2.0], None, [1.0, 2.0, None], [1.0, np.inf, 0.0]]))
    assert [line.partition(":")[0].strip() for line in str(caught.value).splitlines()[1:]] == [
        f"nodes.csv, row {row}, column v" for row in (1, 2, 3, 4)
    ]
    with pytest.raises(TableError, match=r"column v: lists of .* numbers; give every row equally"):
        fit(table_of(v=[[1.5], [1.0, 2.0]]))


def test_words_are_weighted_as_scikit_learn_does() -> None:
    texts = ["one two two", "two three", None, "Three four, one!", "solo"]
    table = table_of(about=texts)
    encoders, told = fit(table, text="about")
    oracle = TfidfVectorizer(min_df=2).fit([text or "" for text in texts])
    assert told == {"about": f"text, {len(oracle.vocabulary_)} words"}
    expected = oracle.transform([text or "" for text in texts]).toarray()
    np.testing.assert_allclose(encoded(encoders, table), expected, rtol=1e-6)
    new = ["two unseen words", ""]
    expected = oracle.transform(new).toarray()
    np.testing.assert_allclose(encoded(encoders, table_of(about=new)), expected, rtol=1e-6)


def test_a_table_too_small_to_repeat_words_keeps_them() -> None:
    _, told = fit(table_of(about=["one", "two"], more=["-", "x"]), text=["about", "more"])
    assert told["about"] == "text, 2 words"
    assert told["more"] == "left out: it has no words of two letters or more"


@pytest.mark.parametrize(
    ("values", "became"),
    [
        (["a", "a", "a", "a"], "left out: all rows are equal"),
        (["7", "7", "7", "7"], "left out: all rows are equal"),
        ([None, "", "NaN", "na"], "left out: it is empty"),
        (["a", "b", "c", "d"], "left out: 4 different texts in 4 rows; name it as text"),
        (["a", "b", "a", "b"], "2 categories"),
        (["01234", "98765", "01234", "98765"], "2 categories"),
        (["true", "false", None, None], "2 categories"),
        (["1", "2", "3", "NaN"], "numbers, standardised, and whether one is missing"),
        ([" 1", "2 ", "+3", ".5e1"], "numbers, standardised"),
        (["1", "x", "1", "x"], "2 categories"),
    ],
)
def test_what_a_column_of_a_csv_file_becomes(values: list[Any], became: str) -> None:
    _, told = fit(table_of(plain_text=True, a=values))
    assert told["a"].startswith(became)


def test_texts_in_typed_files_are_no_numbers() -> None:
    _, told = fit(table_of(a=["1", "2", "1", "2"]))
    assert told == {"a": "2 categories"}


def test_dates_and_records_are_left_out() -> None:
    import datetime

    day = datetime.date(2020, 1, 1)
    _, told = fit(table_of(day=[day, day, None], record=[{"x": 1}, {"x": 2}, None]))
    assert told["day"].startswith("left out: values of the type date32[day] are not encoded")
    assert told["record"].startswith("left out: values of the type struct<x: int64>")


def test_a_text_among_numbers_is_a_mistake_unless_it_is_said() -> None:
    values = [*map(str, range(20)), "12x"]
    with pytest.raises(TableError, match="row 21, column a: '12x' is not a number, but most"):
        fit(table_of(plain_text=True, a=values))
    _, told = fit(table_of(plain_text=True, a=values), categories="a")
    assert told == {"a": "21 categories"}
    with pytest.raises(TableError, match="column a: numbers with a comma in them"):
        fit(table_of(plain_text=True, a=["1,5", "2,25", "-3,0"]))


def test_many_columns_are_stored_sparse_if_most_of_them_are_zero() -> None:
    words = [" ".join(f"word{(row * k) % 97}" for k in range(5)) for row in range(60)]
    encoders, _ = fit(table_of(about=words, x=[float(row) for row in range(60)]), text="about")
    assert encoders.sparse is True
    assert encoders.scaling == "none"
    assert Encoders.from_record(json.loads(json.dumps(encoders.record()))) == encoders
    dense, _ = fit(table_of(x=[float(row) for row in range(60)]))
    assert not dense.sparse
    assert joined([np.ones((2, 1), np.float32), sp.eye_array(2)], False).tolist() == [
        [1, 1, 0],
        [1, 0, 1],
    ]


def everything() -> tuple[Encoders, Table]:
    table = table_of(
        number=[1.5, 2.0, None, 0.1],
        category=["ß", "=1+1", "ß", "=1+1"],
        tags=[["a"], [], ["b", "a"], None],
        vector=[[1.0, 2.0]] * 3 + [[0.5, 0.0]],
        about=["one two", "two one", "", "two"],
    )
    return fit(table, text="about")[0], table


def test_encoders_come_back_from_json_and_encode_the_same_bits() -> None:
    encoders, table = everything()
    record = json.loads(json.dumps(encoders.record()))
    again = Encoders.from_record(record)
    assert again == encoders
    np.testing.assert_array_equal(encoded(again, table), encoded(encoders, table))


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.pop("id"),
        lambda record: record.update(extra=1),
        lambda record: record.update(columns=[3]),
        lambda record: record["columns"][0].update(kind="pickle"),
        lambda record: record["columns"][0].update(deviation=0.0),
        lambda record: record["columns"][0].update(mean="x"),
        lambda record: record["columns"][1].update(values="ab"),
        lambda record: record["columns"][4].update(words=["one"]),
        lambda record: record["columns"][4].update(documents=[-1, 2]),
        lambda record: record.update(structure={"dimensions": -1}),
    ],
)
def test_a_record_that_was_changed_is_refused(change: Any) -> None:
    record = json.loads(json.dumps(everything()[0].record()))
    change(record)
    with pytest.raises(ConfigError):
        Encoders.from_record(record)


def test_missing_columns_are_named_together() -> None:
    encoders, table = everything()
    fewer = dataclasses.replace(table, columns={"tags": table.columns["tags"]})
    with pytest.raises(TableError) as caught:
        encoded(encoders, fewer)
    told = str(caught.value).splitlines()[1:]
    assert [line.split(":")[0].strip() for line in told] == [
        f"nodes.csv, column {name}" for name in ("number", "category", "vector", "about")
    ]
    assert "is missing; the model was trained with it as 2 categories" in told[1]


def test_columns_of_another_type_are_told() -> None:
    encoders, table = everything()
    swapped = {
        "number": table.columns["tags"],
        "category": table.columns["vector"],
        "tags": table.columns["number"],
        "vector": table.columns["category"],
        "about": table.columns["number"],
    }
    with pytest.raises(TableError) as caught:
        encoded(encoders, dataclasses.replace(table, columns=swapped))
    told = [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]]
    assert told == [f"nodes.csv, column {name}" for name in swapped]


def test_the_table_of_transform_is_a_frame_or_a_file(tmp_path: Any) -> None:
    table = table_of(x=[1.0, 2.0, 4.0])
    encoders, _ = fit(table)
    frame = pa.table({"x": [2.0], "ignored": ["?"]})
    (tmp_path / "new.csv").write_text("ignored,x\n?,2\n")
    expected = encoded(encoders, table)[[1]]
    np.testing.assert_array_equal(encoders.transform(frame), expected)
    np.testing.assert_array_equal(encoders.transform(tmp_path / "new.csv"), expected)
    with pytest.raises(TableError, match="column x: is missing"):
        encoders.transform(pa.table({"y": [1.0]}))


@pytest.mark.parametrize("size", [2, -1])
def test_a_null_among_lists_of_a_fixed_size_has_no_items(size: int) -> None:
    lists = [[1, 2], None, [3, 4], [1, 4]]
    column = pa.chunked_array([pa.array(lists, pa.list_(pa.int64(), size))])
    table = Table("nodes.csv", {"tags": common_type(column)})
    encoders, _ = fit(table)
    expected = MultiLabelBinarizer().fit_transform([each or [] for each in lists])
    np.testing.assert_array_equal(encoded(encoders, table), expected)


def test_vectors_are_scaled_alike_from_a_column_and_from_a_file() -> None:
    """Alone, they are in units that nobody knows; beside other columns, these are on one scale."""
    column, number = Vectors("v", 3), Numbers("x", 2.0, 5.0)
    for given in ({"columns": (column,)}, {"columns": (), "vector_size": 3}):
        assert Encoders("id", **given).scaling == "auto"
        beside = given | {"columns": (*given["columns"], number)}
        assert Encoders("id", **beside).scaling == "none"
    assert Encoders("id", (column,), vector_size=3).scaling == "auto"
    assert Encoders("id", (), structure=Structure(4)).scaling == "none"


def test_minus_one_and_one_are_numbers_and_no_flags() -> None:
    table = table_of(side=[-1, 1, -1, 1], flag=[0, 1, 1, 0])
    encoders, told = fit(table)
    assert told == {"side": "numbers, standardised", "flag": "zeros and ones"}
    assert [encoder.nonnegative for encoder in encoders.columns] == [False, True]
    assert encoders.scaling == "none"
    # Saved by an earlier version, which did not tell them apart.
    record = encoders.record()
    for each in record["columns"]:
        del each["flag"]
    assert [each.is_flag for each in Encoders.from_record(record).columns] == [True, True]


def test_words_for_missing_values_are_no_words() -> None:
    texts = ["tea time", "NULL", "nan", " NA ", "n/a", "tea", "null and void", "null"]
    encoders, _ = fit(table_of(about=texts), text="about")
    assert encoders.columns[0].words == ("tea",)
    assert encoded(encoders, table_of(about=["NULL", "tea", None])).tolist() == [[0], [1], [0]]


def test_roles_that_a_column_cannot_have_are_problems() -> None:
    import datetime

    day = [datetime.date(2020, 1, at) for at in (1, 2)]
    for role, told in {
        "categories": r"column day: date32\[day\] cannot be categories; write text or numbers",
        "text": r"column day: date32\[day\] is given as text, but is none",
        "lists": r"column day: date32\[day\] where lists are expected",
    }.items():
        with pytest.raises(TableError, match=told):
            fit(table_of(day=day), **{role: "day"})
    with pytest.raises(TableError, match="column tags: list<item: string> cannot be categories"):
        fit(table_of(tags=[["a"], ["b"]]), categories="tags")


def test_lists_of_numbers_beyond_64_bits_are_items() -> None:
    column = pa.chunked_array([pa.array([[2**63 + 1, 3], None, [3]], pa.list_(pa.uint64()))])
    table = Table("nodes.csv", {"codes": common_type(column)})
    encoders, _ = fit(table)
    assert encoders.columns[0].values == ("3", "9223372036854775809")
    assert encoded(encoders, table).tolist() == [[1, 1], [0, 0], [1, 0]]
