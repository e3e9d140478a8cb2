"""Traces: recorded or generated requests."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import pyarrow as pa

from . import _nigh
from ._arguments import Sizes, block_size_of, count_of, limit_of
from ._nigh import is_uri
from ._policy import Factory
from ._progress import bar
from ._result import Result

#: The largest value of ``limit``.
_ALL = 2**64 - 1


class Trace:
    """Recorded or generated requests to blocks, which can be replayed.

    ``source`` is one of:

    * a path, or a URI such as ``s3://bucket/trace.zst`` (through fsspec): a trace of any format that ``nigh trace formats``
      lists, plain or compressed by gzip, zstd or xz. The format is detected.
    * a pyarrow Table, RecordBatch or RecordBatchReader; a pandas or Polars DataFrame; a mapping of names to NumPy or
      Arrow arrays; or another object with the Arrow PyCapsule interface. Numbers are read in place, without a copy.
    * a list, a range or a one-dimensional array of numbers of blocks, each of which is read.

    Columns of tables (only ``offset`` or ``block`` is required; others with these names are read, others are ignored):

    ========== ============================================================= ================
    column     meaning                                                       default
    ========== ============================================================= ================
    time_ns    nanoseconds on any clock, or a timestamp or duration; sorted  0
    op         read, write, trim, flush, or 0 to 3                           read
    volume     the file or disk that contains ``offset``                     0
    offset     first byte                                                    (required)
    block      number of the first block, instead of ``offset``
    length     bytes                                                         one block
    tenant     who is charged: a process, a VM, a client                     0
    stream     identity of the issuing code or file                          0
    latency_ns nanoseconds from request to reply                             0 (unknown)
    content    identity of what was read or written                          0 (unknown)
    ========== ============================================================= ================

    ``block_size`` is in bytes, a power of two, or text such as ``"64K"``; by default that of the trace, or else 4096.
    ``name`` is that of a table in results and messages.

    ``offset_unit`` is that of a table's offsets: ``"bytes"``, ``"sectors"`` or ``"blocks"``. Without it, they are bytes; a warning and a
    note of results report offsets that are no whole sectors although all lengths are, because these may be numbers of blocks.

    Files only, as the flags of ``nigh sim``:

    * ``format``: the format, if it cannot be detected, such as ``"vscsi"`` (``nigh trace formats`` lists all).
    * ``columns``: those of a CSV file, by position from 0 or by name, such as ``"offset=3,length=4,op=2,time=0,time-unit=us"``.
    * ``stream``: the program counter of a ``pc`` trace that is its stream: ``"pc5"``, ``"pc8"``, ``"pc16"``, ``"ra0"``, ``"file"``.
    * ``action``: the events of blkparse or perf that are the requests: ``"queue"``, ``"issue"`` or ``"complete"``.
    * ``recorded_sizes``: objects are as long as recorded, instead of one block.
    * ``skip_bad``: lines and records that do not match the format are left out, and a note counts them.

    Raises ``ValueError`` that names column and row for values that are no requests.
    """

    def __init__(
        self,
        source: Any,
        *,
        format: str | None = None,
        columns: str | None = None,
        block_size: int | str | None = None,
        stream: str | None = None,
        action: str | None = None,
        recorded_sizes: bool = False,
        skip_bad: bool = False,
        offset_unit: str | None = None,
        name: str | None = None,
    ) -> None:
        block_bytes = block_size_of(block_size)
        self._references: dict[tuple[str, bool, float | None, int | None], _nigh.References] = {}
        if isinstance(source, _nigh.Source):
            self._source = source
            return
        if isinstance(source, (str, os.PathLike)):
            if offset_unit:
                raise ValueError("offset_unit describes tables: for a CSV file, it is part of columns")
            path = os.fspath(source)
            if path == "-":
                raise ValueError("'-': standard input can be read once only: save the trace in a file")
            settings: _nigh.ReadSettings = {
                "format": format,
                "columns": columns,
                "block_bytes": block_bytes,
                "stream": stream,
                "action": action,
                "recorded_sizes": recorded_sizes,
                "skip_bad": skip_bad,
            }
            if is_uri(path):
                self._source = _nigh.Source.opener(opener(path), path, settings)
            else:
                self._source = _nigh.Source.file(path, settings)
            return
        if format or columns or stream or action or recorded_sizes or skip_bad:
            raise ValueError("format, columns, stream, action, recorded_sizes and skip_bad describe files, not tables")
        table, unit = _in_blocks(_as_stream(source), offset_unit)
        self._source = _nigh.Source.columns(table, name or "table", block_bytes or 4096, unit)
        note = self._source.note()
        if note:
            warnings.warn(f"{self.name}: {note}", stacklevel=2)

    @property
    def name(self) -> str:
        """The name in tables and messages."""
        return self._source.name

    @property
    def format(self) -> str:
        """The format in a word; ``arrow`` for tables and ``generated`` for generators."""
        return self._source.format

    @property
    def block_bytes(self) -> int:
        """Bytes in a block."""
        return self._source.block_bytes

    def __repr__(self) -> str:
        return f"<nigh.Trace {self.name!r}: {self.format}, blocks of {self.block_bytes} bytes>"

    def head(self, count: int = 10) -> pa.Table:
        """The first ``count`` requests as an Arrow table, in the columns described in :class:`Trace`."""
        return pa.Table.from_batches(self._source.requests(count_of("count", count, 0), None))

    def to_arrow(self, *, limit: int | None = None, progress: bool | None = None) -> pa.Table:
        """All requests, or the first ``limit``, as an Arrow table."""
        with bar(progress, "reading", limit, " requests") as update:
            return pa.Table.from_batches(self._source.requests(limit_of(limit) or _ALL, update))

    def info(self, *, sample: float | None = None) -> dict[str, Any]:
        """Summary of the trace's contents.

        ``requests``, ``reads``, ``writes`` (numbers of requests), ``bytes`` (requested), ``references`` (to blocks),
        ``distinct_blocks``, ``block_bytes``, ``duration_s`` (seconds from the first request to the last; ``None`` if the trace
        has no times). With ``sample``, a share such as 0.01, ``distinct_blocks`` is an estimate, and ``replayed_references`` are
        those of the sample.
        """
        return dict(self._load(sample=sample).info())

    def mrc(
        self,
        policy: str | Factory = "lru",
        sizes: Sizes | None = None,
        *,
        sample: float | None = None,
        **settings: Any,
    ) -> Result:
        """The miss-ratio curve of ``policy``.

        For ``lru`` without ``sizes`` it is exact at every size, from one pass (Mattson et al., 1970): the rows are the sizes
        at which a block more brings more hits. Other policies are replayed at each of ``sizes``, by default at nine shares
        of the distinct blocks. ``sample`` replays a share of the blocks (SHARDS: Waldspurger et al., FAST 2015), such as
        0.01: ratios are then estimates for the whole trace, with ``error``; ``hits`` and ``misses`` are those of the sample.
        ``settings`` are those of :func:`nigh.sim`.
        """
        from ._sim import sim

        if policy != "lru" or sizes is not None:
            return sim(self, [policy], sizes, sample=sample, **settings)
        result = sim(self, [policy], None, sample=sample, exact_lru=True, **settings)
        return _curve_rows(result)

    def _load(
        self,
        *,
        ops: str = "all",
        collapse: bool = False,
        sample: float | None = None,
        limit: int | None = None,
        progress: bool | None = False,
    ) -> _nigh.References:
        """The references; those of the last settings are kept."""
        key = (ops, collapse, sample, limit)
        if key not in self._references:
            self._references.clear()
            with bar(progress, f"reading {self.name}", None, " requests") as update:
                loaded = self._source.load(ops=ops, collapse=collapse, sample=sample, limit=limit, progress=update)
            self._references[key] = loaded
        return self._references[key]

    def forget(self) -> None:
        """Frees the decoded references, which are kept for the next replay: 4 bytes each, and 16 to 30 a block."""
        self._references.clear()

    def __reduce__(self) -> Any:
        raise TypeError("a Trace is not sent to other processes: send its path or URI")


def generate(
    spec: str,
    *,
    requests: int = 1_000_000,
    block_size: int | str = 4096,
    seed: int = 1,
    writes: float = 0.0,
    gap_us: float = 100.0,
    poisson: bool = False,
) -> Trace:
    """A generated workload, such as ``"zipf:blocks=1M:alpha=0.9"``; the same arguments give the same requests everywhere.

    ``spec`` is a generator with parameters. Joined by ``+``, several take turns by their ``weight``, each in its own region
    of the disk; joined by ``,``, they follow each other, each for as many requests as stand behind its ``@``:
    ``"loop:blocks=2k:weight=3+uniform:blocks=50k@200k,scan:blocks=100k@100k"``.

    ============= ====================================================================== ===========================
    generator     references                                                             parameters
    ============= ====================================================================== ===========================
    zipf          independent; the popularity of blocks follows Zipf's law               blocks, alpha, scatter
    uniform       independent; all blocks are equally popular                            blocks
    loop          all blocks in order, over and over                                     blocks
    scan          all blocks in order, once                                              blocks
    zigzag        all blocks in order, and backward, in turn                             blocks
    two-pools     a random index block and a random record block in turn (Jiang, 2004)   index, records
    clustered     LRU stack distances follow a distribution                              blocks, distances, mean,
                                                                                         alpha, scatter
    ============= ====================================================================== ===========================

    All have ``weight``, ``tenant``, ``region`` (the first block) and ``writes``; ``nigh trace generate --help`` describes them.

    * ``requests``: how many, of one block each. ``block_size``: bytes, or text such as ``"64K"``.
    * ``writes``: the share of the requests that write, 0 to 1.
    * ``gap_us``: the mean time between two requests, in microseconds; with ``poisson``, these times are exponential.
    """
    block_bytes = block_size_of(block_size)
    assert block_bytes is not None
    source = _nigh.Source.generated(
        spec,
        requests=count_of("requests", requests),
        block_bytes=block_bytes,
        seed=count_of("seed", seed, 0),
        writes=writes,
        gap_us=gap_us,
        poisson=poisson,
    )
    return Trace(source)


def opener(uri: str) -> Callable[[], BinaryIO]:
    """Function that opens the file at a URI, again and again."""
    try:
        import fsspec
    except ImportError:
        raise ImportError(f"{uri}: URIs need fsspec: pip install fsspec") from None

    def open_again() -> Any:
        return fsspec.open(uri, "rb").open()

    return open_again


def _as_stream(source: Any) -> Any:
    """An object with the Arrow PyCapsule interface for streams."""
    if isinstance(source, Mapping):
        arrays = {}
        for name, column in source.items():
            try:
                arrays[str(name)] = pa.array(column)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise ValueError(f"column `{name}`: {error}") from None
        lengths = {name: len(array) for name, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns have different lengths: {lengths}")
        return pa.table(arrays)
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if _is_column(source):
        return pa.table({"block": _numbers(source)})
    if type(source).__module__.split(".")[0] == "pandas":
        # Without the columns that are not read, which may be of types that Arrow does not have.
        known = [name for name in source.columns if isinstance(name, str)]
        return pa.Table.from_pandas(source[known], preserve_index=False)
    if hasattr(source, "__arrow_c_stream__"):
        return source
    raise TypeError(
        f"{type(source).__name__}: expected a path, a URI, an Arrow table, a DataFrame, a mapping of names to arrays, or numbers of "
        "blocks"
    )


def _is_column(source: Any) -> bool:
    """Whether it is a single column: a list, a range, or an array with one dimension."""
    if isinstance(source, (list, tuple, range, pa.Array, pa.ChunkedArray)):
        return True
    shape = getattr(source, "shape", None)
    return isinstance(shape, tuple) and len(shape) == 1


def _numbers(column: Any) -> pa.Array | pa.ChunkedArray:
    """Numbers of blocks."""
    try:
        array = column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column)
        return array.cast(pa.uint64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"numbers of blocks: {error}") from None


def _in_blocks(table: Any, unit: str | None) -> tuple[Any, str | None]:
    """The table with a column ``offset``, and the unit of that: blocks, if it has ``block`` instead."""
    if not hasattr(table, "column_names"):
        # Read once only, so it is looked at no further than its names.
        if not hasattr(table, "__arrow_c_schema__"):
            return table, unit
        names = pa.schema(table).names
    else:
        names = table.column_names
    if "block" not in names or "offset" in names:
        return table, unit
    if unit not in (None, "blocks"):
        raise ValueError(f"offset_unit={unit!r}: the column `block` has numbers of blocks")
    table = table if isinstance(table, pa.Table) else pa.table(table)
    return table.rename_columns(["offset" if name == "block" else name for name in table.column_names]), "blocks"


def _curve_rows(result: Result) -> Result:
    import pyarrow.compute as pc

    curve = result.curve
    assert curve is not None
    blocks = curve["size_blocks"]
    table = pa.table(
        {
            "policy": pa.array(["lru"] * len(blocks), pa.string()),
            "size_blocks": blocks,
            "size_bytes": pc.multiply(blocks, pa.scalar(result.info["block_bytes"], pa.uint64())),
            "references": curve["references"],
            "hits": curve["hits"],
            "misses": pc.subtract(curve["references"], curve["hits"]),
            "hit_ratio": curve["hit_ratio"],
            "miss_ratio": curve["miss_ratio"],
            "error": curve["error"],
        }
    )
    return Result(table, info=result.info, curve=curve, notes=result.notes, cpu_s=result.cpu_s)
