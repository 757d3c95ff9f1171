"""Published pickles are read; pickles that want to run something are refused before it runs."""

from __future__ import annotations

import collections
import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dropnode.data.readers.npz import load_npz
from dropnode.data.readers.unpickle import load_pickle, to_csr, unpickle
from dropnode.errors import DataError


class Call:
    """Pickles as a call of ``function`` with ``arguments``."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.arguments


def attacks(marker: Path) -> dict[str, tuple[Any, str]]:
    """Return objects whose unpickling would create ``marker``, and the name they must ask for."""
    touch = f"open({str(marker)!r}, 'w').close()"
    nested = sp.csr_matrix(np.eye(2))
    nested.extra = [{"deep": Call(eval, touch)}]
    return {
        "system": (Call(os.system, f"touch {marker}"), "system"),
        "eval": (Call(eval, touch), "eval"),
        "exec": (Call(exec, touch), "exec"),
        "open": (Call(open, str(marker), "w"), "open"),
        "in a list": ([1, [2, Call(eval, touch)]], "eval"),
        "in a sparse matrix": (nested, "eval"),
        "in an array": (np.array([Call(eval, touch)], dtype=object), "eval"),
        "as a default": (collections.defaultdict(Call), "Call"),
    }


CASES = [
    (kind, protocol)
    for kind in attacks(Path("marker"))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    # Elsewhere a matrix as such asks for names that the published files do not need.
    if kind != "in a sparse matrix" or protocol in (2, 3, 4)
]


@pytest.mark.parametrize(("kind", "protocol"), CASES)
def test_nothing_in_a_hostile_pickle_runs(kind: str, protocol: int, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    value, name = attacks(marker)[kind]
    path = tmp_path / "ind.cora.x"
    path.write_bytes(pickle.dumps(value, protocol))
    with pytest.raises(DataError, match=rf"ind\.cora\.x asks for .*{name}"):
        load_pickle(path)
    assert not marker.exists()
    # The attack is real: without the restriction it would have worked.
    if kind != "as a default":
        pickle.loads(path.read_bytes())
        assert marker.exists()


@pytest.mark.parametrize("kind", ["system", "eval", "in a list"])
def test_nothing_in_a_hostile_npz_runs(kind: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    value, name = attacks(marker)[kind]
    path = tmp_path / "graph.npz"
    array = np.empty(1, dtype=object)
    array[0] = value
    np.savez(path, adj_data=np.ones(3), class_names=array)
    with pytest.raises(DataError, match=rf"graph\.npz:class_names\.npy asks for .*{name}"):
        load_npz(path)
    assert not marker.exists()


def test_a_hand_written_pickle_that_reaches_for_a_module_is_refused() -> None:
    for program in (b"cos\nsystem\n(S'true'\ntR.", b"c__builtin__\neval\n(S'1'\ntR."):
        with pytest.raises(DataError, match=r"asks for (os\.system|__builtin__\.eval)"):
            unpickle(io.BytesIO(program), "x")


def test_python_2_pickles_under_old_names_are_read() -> None:
    # What Python 2 and an early NumPy wrote for array([1, 2], dtype=uint8).
    program = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I2\nt"
        b"cnumpy\ndtype\n(S'u1'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS'\\x01\\x02'\ntb."
    )
    assert unpickle(io.BytesIO(program), "x").tolist() == [1, 2]
    graph = unpickle(io.BytesIO(b"ccollections\ndefaultdict\n(c__builtin__\nlist\ntR."), "x")
    assert graph == {}
    assert graph[0] == []


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_sparse_matrices_come_back(protocol: int) -> None:
    dense = np.array([[0, 1.5, 0], [2, 0, 0]], dtype=np.float32)
    for kind in (sp.csr_matrix, sp.coo_matrix):
        stored = io.BytesIO(pickle.dumps(kind(dense), protocol))
        assert np.array_equal(to_csr(unpickle(stored, "x"), "x").toarray(), dense)


WHOLE = pickle.dumps({"matrix": np.arange(6.0), "names": ["a", "b"]}, protocol=2)


@given(st.integers(0, len(WHOLE) - 1))
def test_a_truncated_pickle_is_an_error_that_names_the_file(length: int) -> None:
    with pytest.raises(DataError, match=r"ind\.cora\.y is not a readable pickle"):
        unpickle(io.BytesIO(WHOLE[:length]), "ind.cora.y")


def test_a_sparse_matrix_that_points_outside_itself_is_refused() -> None:
    matrix = sp.csr_matrix(np.eye(3))
    matrix.indices[1] = 10**6
    stored = io.BytesIO(pickle.dumps(matrix))
    with pytest.raises(DataError, match=r"ind\.cora\.x holds no sound sparse matrix"):
        to_csr(unpickle(stored, "ind.cora.x"), "ind.cora.x")
    with pytest.raises(DataError, match="no sound sparse matrix"):
        to_csr([1, 2], "ind.cora.x")


def test_object_arrays_of_text_in_an_npz_are_read(tmp_path: Path) -> None:
    names = np.array(["theory", "practice"], dtype=object)
    np.savez(tmp_path / "graph.npz", names=names, labels=np.array([1, 0]))
    arrays = load_npz(tmp_path / "graph.npz")
    assert arrays["names"].tolist() == ["theory", "practice"]
    assert arrays["labels"].tolist() == [1, 0]


def test_a_damaged_npz_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    np.savez(path, labels=np.arange(1000))
    whole = path.read_bytes()
    for damaged in (b"", whole[:300], whole[:-10], b"no zip at all"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"graph\.npz is not a readable npz"):
            load_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("labels.npy", b"not an array")
    with pytest.raises(DataError, match=r"graph\.npz is not a readable npz"):
        load_npz(path)
