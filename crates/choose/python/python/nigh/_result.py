"""Results of a replay."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ._arguments import human_bytes

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas
    import polars


class Result:
    """An Arrow table of results: one row for each policy and size.

    ``table`` is the table. The object exports the Arrow PyCapsule interface, so ``pyarrow.table(result)``,
    ``polars.from_arrow(result)`` and DuckDB read it without a copy.

    ================================== ======================================================================
    column                             meaning
    ================================== ======================================================================
    policy                             the policy with its parameters
    size_blocks, size_bytes            the size of the cache
    references, hits, misses           counts of references to blocks; with a sample, those of the sample
    hit_ratio, miss_ratio              0 to 1; with a sample, estimates for the whole trace
    error                              half the width of the 95 % confidence interval of the ratios; null
                                       without a sample
    writes, write_hits                 references that write, and those of them that hit
    read_hit_ratio, write_hit_ratio    0 to 1; null if nothing reads, or writes
    bytes_missed                       bytes of the blocks that missed; with a sample, estimated
    evictions                          null if LRU was counted at all sizes in one pass
    ghosts                             the most evicted blocks that the policy remembers; null if unlimited
    ================================== ======================================================================

    Sweeps add the columns ``trace`` and ``key``; :func:`nigh.timed` and :func:`nigh.levels` describe their own.
    """

    def __init__(
        self,
        table: pa.Table,
        *,
        info: dict[str, Any] | None = None,
        curve: pa.Table | None = None,
        internals: pa.Table | None = None,
        notes: tuple[str, ...] = (),
        cpu_s: float | None = None,
        errors: dict[str, str] | None = None,
    ) -> None:
        self.table = table
        #: Description of the trace: requests, references, distinct_blocks, block_bytes, duration_s and so on.
        self.info = info or {}
        #: LRU at every size at which a block more brings more hits: ``size_blocks``, ``references``, ``hits``,
        #: ``hit_ratio``, ``miss_ratio``, ``error``, as in the rows.
        self.curve = curve
        #: The policies' internal quantities over time: ``policy``, ``size_blocks``, ``references`` (replayed so far),
        #: ``quantity``, ``value``.
        self.internals = internals
        #: Remarks on the figures.
        self.notes = notes
        #: Seconds of processor time of the replays, without decoding the trace.
        self.cpu_s = cpu_s
        #: The traces of a sweep that have no rows, and why.
        self.errors = errors or {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """The Arrow table."""
        return self.table

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas DataFrame; needs pandas."""
        frame: pandas.DataFrame = self.table.to_pandas()
        return frame

    def to_polars(self) -> polars.DataFrame:
        """A Polars DataFrame; needs polars."""
        import polars

        frame = polars.from_arrow(self.table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def plot(self, ax: matplotlib.axes.Axes | None = None, **settings: Any) -> matplotlib.axes.Axes:
        """Plots hit ratio against size, a line for each policy; see :func:`nigh.plot.hit_ratios`. Needs matplotlib."""
        from . import plot

        return plot.hit_ratios(self, ax, **settings)

    def _repr_html_(self) -> str:
        """The table, for notebooks: hit ratios by size and policy where these are its columns."""
        names = self.table.column_names
        if "hit_ratio" in names and "trace" not in names:
            ratios = {(row["size_bytes"], row["policy"]): row["hit_ratio"] for row in self.table.to_pylist()}
            sizes, policies = (list(dict.fromkeys(key[at] for key in ratios)) for at in (0, 1))
            head = ["hit ratio, %", *policies]
            rows = [
                [human_bytes(size), *(_percent(ratios.get((size, policy))) for policy in policies)] for size in sorted(sizes)
            ]
        else:
            head, rows = names, [[_cell(value) for value in row.values()] for row in self.table.slice(0, 50).to_pylist()]
        lines = ["<table>", _row("th", head), *(_row("td", row) for row in rows), "</table>"]
        if len(rows) == 50 < len(self):
            lines.append(f"<p>{len(self) - 50} more rows</p>")
        lines += [f"<p>note: {html.escape(note)}</p>" for note in self.notes]
        return "\n".join(lines)

    def __repr__(self) -> str:
        columns = ("policy", "size_blocks", "hit_ratio")
        shown = [name for name in columns if name in self.table.column_names]
        lines = [f"<nigh.Result: {len(self)} rows>"]
        for row in self.table.select(shown).slice(0, 20).to_pylist():
            lines.append("  " + "  ".join(f"{value:.4f}" if isinstance(value, float) else f"{value:>12}" for value in row.values()))
        if len(self) > 20:
            lines.append(f"  ... {len(self) - 20} more")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def _row(cell: str, values: list[str]) -> str:
    return "<tr>" + "".join(f"<{cell}>{html.escape(value)}</{cell}>" for value in values) + "</tr>"


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * ratio:.2f}"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
