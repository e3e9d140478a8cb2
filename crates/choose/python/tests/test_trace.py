"""Traces from files, tables and generators, and what is wrong with values that are no requests."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nigh

BLOCK = 4096


def columns(count: int = 1000) -> dict[str, Any]:
    offsets = (np.arange(count, dtype=np.uint64) * 7 % 97) * BLOCK
    return {
        "time_ns": np.arange(count, dtype=np.uint64) * 1000,
        "op": ["read" if at % 3 else "write" for at in range(count)],
        "volume": np.zeros(count, dtype=np.uint32),
        "offset": offsets,
        "length": np.full(count, BLOCK, dtype=np.uint32),
        "tenant": np.ones(count, dtype=np.uint32),
        "stream": np.zeros(count, dtype=np.uint64),
        "latency_ns": np.zeros(count, dtype=np.uint64),
        "content": np.zeros(count, dtype=np.uint64),
    }


def as_text(path: Path, table: pa.Table) -> Path:
    """The table as CSV, which another reader decodes."""
    import pyarrow.csv

    path.parent.mkdir(exist_ok=True)
    decoded = [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in table.columns]
    pyarrow.csv.write_csv(pa.table(decoded, names=table.column_names), path)
    return path


@pytest.mark.parametrize(
    "make",
    [
        lambda data: data,
        lambda data: pa.table(data),
        lambda data: pa.table(data).to_batches()[0],
        lambda data: pa.table(data).to_reader(max_chunksize=64),
        lambda data: pd.DataFrame(data),
        lambda data: pl.DataFrame(data),
        lambda data: {**data, "op": pa.array(data["op"]).dictionary_encode()},
        lambda data: {**data, "op": [0 if op == "read" else 1 for op in data["op"]]},
        lambda data: {**data, "op": pa.array(data["op"], pa.large_string())},
        lambda data: {**data, "op": pa.array(data["op"], pa.string_view())},
        lambda data: {**data, "time_ns": pd.to_datetime(data["time_ns"])},
        lambda data: {**data, "time_ns": (data["time_ns"] // 1000).astype("timedelta64[us]")},
    ],
)  # fmt: skip
def test_tables_of_all_kinds_are_the_same_requests(make: Any) -> None:
    data = columns()
    trace = nigh.Trace(make(data))
    read = trace.to_arrow().to_pandas()
    assert read["op"].tolist() == data["op"]
    for name in ("time_ns", "volume", "offset", "length", "tenant", "stream", "latency_ns", "content"):
        assert read[name].tolist() == list(data[name]), name


@pytest.mark.parametrize(
    "wrap",
    [lambda array: {"offset": array}, lambda array: pd.DataFrame({"offset": array}, copy=False), lambda array: pa.table({"offset": array})],
)  # fmt: skip
def test_numbers_are_read_in_place(wrap: Any) -> None:
    array = np.arange(10, dtype=np.uint64) * BLOCK
    trace = nigh.Trace(wrap(array))
    # Nobody should do this; a copy would not show it.
    array[3] = 77 * BLOCK
    assert trace.head().to_pandas()["offset"][3] == 77 * BLOCK


def test_polars_is_read_in_place() -> None:
    before = pa.total_allocated_bytes()
    frame = pl.DataFrame({"offset": np.arange(1_000_000, dtype=np.uint64)})
    trace = nigh.Trace(frame)
    assert pa.total_allocated_bytes() == before
    assert trace.head(1)["offset"].to_pylist() == [0]


def test_defaults_of_columns() -> None:
    trace = nigh.Trace({"offset": [0, 65536]}, block_size="64K")
    assert trace.head().to_pylist() == [
        {"time_ns": 0, "op": "read", "volume": 0, "offset": offset, "length": 65536, "tenant": 0, "stream": 0, "latency_ns": 0, "content": 0}
        for offset in (0, 65536)
    ]
    assert trace.info()["distinct_blocks"] == 2


WRONG = [
    ({"time_ns": [1]}, "no column `offset`; the columns are time_ns"),
    ({"offset": [0, -4096]}, "row 1: column `offset`: found -4096"),
    ({"offset": [0.0, float("nan")]}, "row 1: column `offset`: found NaN"),
    ({"offset": [0.5]}, "column `offset` has type Float64, expected integers"),
    ({"offset": ["a"]}, "column `offset` has type Utf8"),
    ({"offset": [0, None]}, "row 1: column `offset`: found nothing (null)"),
    ({"offset": [0, 0], "length": [1, 2**32]}, "row 1: column `length`: found 4294967296"),
    ({"offset": [0, 0], "length": [1, None]}, "row 1: column `length`: found nothing"),
    ({"offset": [0, 0, 0], "time_ns": [1, 3, 2]}, "row 2: column `time_ns`: found 2 after 3"),
    ({"offset": [0], "time_ns": [-1]}, "row 0: column `time_ns`: found -1"),
    ({"offset": [0, 0], "op": ["read", "fetch"]}, "row 1: column `op`: found `fetch`"),
    ({"offset": [0, 0], "op": [0, 4]}, "row 1: column `op`: found 4"),
    ({"offset": [0], "op": [1.5]}, "column `op` has type Float64"),
    ({"offset": [0], "tenant": [-1]}, "row 0: column `tenant`: found -1"),
    ({"offset": [0], "lenght": [4096]}, "column `lenght`: did you mean `length`?"),
    ({"offset": []}, "no rows"),
    ({"offset": pa.array([], pa.uint64())}, "no rows"),
    ({"offset": [0, 1], "length": [1]}, "different lengths"),
    ({"offset": [object()]}, "column `offset`"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "says"), WRONG)
def test_wrong_values_are_named_by_column_and_row(data: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError) as raised:
        nigh.Trace(data)
    assert says in str(raised.value)


def test_a_row_is_counted_over_all_batches() -> None:
    good = pa.record_batch({"offset": pa.array(range(10_000), pa.int64())})
    bad = pa.record_batch({"offset": pa.array([*range(6_000), -1], pa.int64())})
    with pytest.raises(ValueError, match="row 16000: column `offset`: found -1"):
        nigh.Trace(pa.Table.from_batches([good, bad]))
    late = pa.record_batch({"offset": pa.array([1], pa.int64()), "time_ns": pa.array([5], pa.int64())})
    early = pa.record_batch({"offset": pa.array([1], pa.int64()), "time_ns": pa.array([4], pa.int64())})
    with pytest.raises(ValueError, match="row 1: column `time_ns`: found 4 after 5"):
        nigh.Trace(pa.Table.from_batches([late, early]))


@pytest.mark.parametrize("source", [3, None, object()])
def test_what_is_no_trace(source: object) -> None:
    with pytest.raises(TypeError):
        nigh.Trace(source)


def test_numbers_of_blocks_are_a_trace() -> None:
    blocks = [7, 8, 7, 1_000_000]
    offsets = [BLOCK * block for block in blocks]
    sources = [blocks, tuple(blocks), np.array(blocks), np.array(blocks, np.int32), pd.Series(blocks), pa.array(blocks)]
    sources += [pa.chunked_array([blocks[:2], blocks[2:]]), {"block": blocks}, pd.DataFrame({"block": blocks})]
    sources += [pa.table({"block": blocks, "op": ["read"] * 4})]
    for source in sources:
        assert nigh.Trace(source).to_arrow()["offset"].to_pylist() == offsets, source
    assert nigh.Trace(range(3), block_size="64K").head()["offset"].to_pylist() == [0, 65536, 131072]
    assert nigh.sim([1, 2, 1, 2], "lru", 2).table["hits"].to_pylist() == [2]
    # A table with both has bytes.
    assert nigh.Trace({"offset": [4096], "block": [9]}).head()["offset"].to_pylist() == [4096]
    for wrong in ([1, -2], ["a"], [1.5], [None]):
        with pytest.raises(ValueError):
            nigh.Trace(wrong)
    with pytest.raises(ValueError, match="numbers of blocks"):
        nigh.Trace({"block": [1]}, offset_unit="bytes")
    with pytest.raises(TypeError):
        nigh.Trace(np.zeros((2, 2), np.int64))


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        nigh.Trace(tmp_path / "missing")
    assert raised.value.filename == str(tmp_path / "missing")
    (tmp_path / "junk").write_bytes(b"\x00\x01junk")
    with pytest.raises(ValueError, match="not recognized"):
        nigh.Trace(tmp_path / "junk")
    with pytest.raises(ValueError, match="unknown trace format"):
        nigh.Trace(tmp_path / "junk", format="vscs")
    with pytest.raises(ValueError, match="power of two"):
        nigh.Trace({"offset": [0]}, block_size=1000)
    with pytest.raises(ValueError, match="standard input"):
        nigh.Trace("-")


def test_a_file_and_a_uri_are_the_same_trace(tmp_path: Path) -> None:
    path = as_text(tmp_path / "trace.csv", pa.table(columns()))
    of_file, of_uri = nigh.Trace(path), nigh.Trace(f"file://{path}")
    assert of_file.to_arrow().equals(of_uri.to_arrow())
    assert of_file.to_arrow().to_pandas()["offset"].tolist() == columns()["offset"].tolist()
    assert nigh.sim(of_file, "lru").table.equals(nigh.sim(of_uri, "lru").table)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 2**63), st.sampled_from(["read", "write", "trim", "flush"]), st.integers(0, 2**32 - 1),
            st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1),
        ),
        min_size=1, max_size=300,
    ),
    chunk=st.integers(1, 400),
)  # fmt: skip
def test_any_request_survives_the_conversion(rows: list[Any], chunk: int) -> None:
    rows.sort(key=lambda row: row[0])
    names = ["time_ns", "op", "volume", "offset", "length", "tenant", "stream"]
    types = [pa.uint64(), pa.string(), pa.uint32(), pa.uint64(), pa.uint32(), pa.uint32(), pa.uint64()]
    table = pa.table({name: pa.array(column, kind) for name, column, kind in zip(names, zip(*rows), types)})
    trace = nigh.Trace(table.to_reader(max_chunksize=chunk))
    read = trace.to_arrow()
    again = nigh.Trace(read)
    assert read.equals(again.to_arrow())
    for name, column in zip(names, zip(*rows)):
        assert read[name].to_pylist() == list(column), name


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(-5, 5), st.floats(), st.text(max_size=3)), min_size=1, max_size=20))
def test_any_column_is_read_or_refused(values: list[Any]) -> None:
    try:
        trace = nigh.Trace({"offset": values})
    except ValueError:
        assert not all(isinstance(value, int) and value >= 0 for value in values)
    else:
        assert trace.to_arrow()["offset"].to_pylist() == values


def test_units_12_numbers_of_blocks_are_no_bytes_without_a_word() -> None:
    blocks = [block % 100 for block in range(1000)]
    with pytest.warns(UserWarning, match="offset_unit"):
        doubtful = nigh.Trace({"offset": blocks})
    result = nigh.sim(doubtful, "lru", 10)
    # As bytes, they are all in the first two blocks.
    assert result.table["misses"].to_pylist() == [2] and any("offset_unit" in note for note in result.notes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counted = nigh.sim(nigh.Trace({"offset": blocks}, offset_unit="blocks"), "lru", 10)
        assert counted.table["misses"].to_pylist() == [1000] and not counted.notes
        assert nigh.Trace({"offset": [3]}, offset_unit="sectors").head()["offset"].to_pylist() == [1536]
        assert nigh.Trace({"offset": [3]}, offset_unit="bytes").head()["offset"].to_pylist() == [3]
        # Whole sectors, and parts of files.
        nigh.Trace({"offset": [0, 512]})
        nigh.Trace({"offset": [1, 101], "length": [100, 7]})
    for wrong in ("pages", "block"):
        with pytest.raises(ValueError, match="expected 'bytes', 'sectors' or 'blocks'"):
            nigh.Trace({"offset": [1]}, offset_unit=wrong)
    with pytest.raises(ValueError, match="describes tables"):
        nigh.Trace("t.csv", offset_unit="blocks")


def test_generators_repeat_themselves() -> None:
    one, other = (nigh.generate("zipf:blocks=1k", requests=5000, seed=7, writes=0.25) for _ in range(2))
    assert one.to_arrow().equals(other.to_arrow())
    assert not one.to_arrow().equals(nigh.generate("zipf:blocks=1k", requests=5000, seed=8, writes=0.25).to_arrow())
    for wrong in ({"spec": "zip"}, {"spec": "zipf", "requests": 0}, {"spec": "zipf", "seed": -1}, {"spec": "zipf", "block_size": "4 blocks"}, {"spec": "zipf", "block_size": "8G"}, {"spec": "zipf", "writes": 2.0}):
        with pytest.raises(ValueError):
            nigh.generate(**wrong)  # type: ignore[arg-type]


def test_units_are_those_of_the_program() -> None:
    for text, count in [("4096", 4096), ("64K", 65536), ("64KiB", 65536), ("1M", 1 << 20)]:
        assert nigh.generate("zipf", requests=1, block_size=text).block_bytes == count
    with pytest.raises(ValueError, match="power of two"):
        nigh.generate("zipf", requests=1, block_size="64kB")


def test_a_broken_file_object_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError("the line is dead")

    monkeypatch.setattr(fsspec, "open", lambda *_: type("F", (), {"open": lambda self: Broken()})())
    with pytest.raises((OSError, ValueError), match="the line is dead"):
        nigh.Trace("memory://trace")
