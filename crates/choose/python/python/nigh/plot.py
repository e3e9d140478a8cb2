"""Plots with matplotlib, in the style and colours of nigh's pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ._arguments import human_bytes

if TYPE_CHECKING:
    import matplotlib.axes

    from ._result import Result

#: The markers of lines, in order, for those who read in grey.
MARKERS = ("o", "s", "^", "D", "v", "X", "P")
#: The colours of lines, in order; each differs from the next for readers who see no red or no green.
COLOURS = ("#3c3ce0", "#a03000", "#128a66", "#e858cc", "#b99600", "#6e0a6e")
INK, DIM, GRID = "#1a1a1a", "#595959", "#d9d9d9"


def hit_ratios(
    result: Result, ax: matplotlib.axes.Axes | None = None, *, by: str = "bytes", trace: str | None = None
) -> matplotlib.axes.Axes:
    """Hit ratio in percent against the size of the cache, a line for each policy; ``opt`` is dashed.

    ``by``: what the x axis counts, ``"bytes"`` or ``"blocks"``. The axis is logarithmic if the largest size is at least
    ten times the smallest. Where the trace was sampled, the 95 % confidence interval is shaded. ``trace``: which one, if the
    result is that of a sweep over several.
    """
    return _lines(result, ax, by, trace, "hit_ratio", "hit ratio, %", 100.0)


def miss_ratios(
    result: Result, ax: matplotlib.axes.Axes | None = None, *, by: str = "bytes", trace: str | None = None
) -> matplotlib.axes.Axes:
    """Miss ratio in percent against the size of the cache, a line for each policy."""
    return _lines(result, ax, by, trace, "miss_ratio", "miss ratio, %", 100.0)


def times(
    result: Result, ax: matplotlib.axes.Axes | None = None, *, by: str = "bytes", trace: str | None = None
) -> matplotlib.axes.Axes:
    """Execution time of a timed simulation against the size of the cache, a line for each policy."""
    return _lines(result, ax, by, trace, "execution_s", "execution time, s", 1.0)


def internals(result: Result, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
    """A policy's internal quantities against references replayed, a line for each."""
    ax = _axes(ax)
    table = result.internals
    if table is None:
        raise ValueError("there are no internals: give nigh.sim internals=(SIZE, POINTS)")
    from matplotlib.ticker import MaxNLocator

    series = list(dict.fromkeys(zip(table["policy"].to_pylist(), table["quantity"].to_pylist())))
    for at, (policy, quantity) in enumerate(series):
        chosen = table.filter(pc.and_(pc.equal(table["policy"], policy), pc.equal(table["quantity"], quantity)))
        x, y = chosen["references"].to_pylist(), chosen["value"].to_pylist()
        ax.plot(x, y, label=f"{policy}: {quantity}", **_style(at))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlabel("references")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    return _styled(ax)


def _lines(
    result: Result, ax: matplotlib.axes.Axes | None, by: str, trace: str | None, column: str, label: str, scale: float
) -> matplotlib.axes.Axes:
    if by not in ("bytes", "blocks"):
        raise ValueError(f"by={by!r}: expected 'bytes' or 'blocks'")
    table = _of_trace(result.table, trace)
    if column not in table.column_names:
        raise ValueError(f"the result has no column `{column}`; its columns are {', '.join(table.column_names)}")
    ax = _axes(ax)
    coloured = 0
    at_end = {}
    for policy in dict.fromkeys(table["policy"].to_pylist()):
        rows = table.filter(pc.equal(table["policy"], policy)).sort_by("size_blocks")
        x, y = rows[f"size_{by}"].to_pylist(), [scale * value for value in rows[column].to_pylist()]
        if policy == "opt":
            style: dict[str, Any] = {"color": INK, "linewidth": 1.5, "linestyle": (0, (5, 3))}
        else:
            style = _style(coloured)
            coloured += 1
        marker = MARKERS[(coloured - 1) % len(MARKERS)] if len(x) <= 40 and policy != "opt" else None
        ax.plot(x, y, label=policy, marker=marker, markersize=4, **style)
        at_end[policy] = y[-1] if y else 0.0
        errors = _errors(rows) if column in ("hit_ratio", "miss_ratio") else None
        if errors is not None:
            low = [max(0.0, value - scale * error) for value, error in zip(y, errors)]
            high = [min(scale, value + scale * error) for value, error in zip(y, errors)]
            ax.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)
    _size_axis(ax, by, table[f"size_{by}"].to_pylist())
    ax.set_ylabel(label)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    ax.set_ylim(bottom=0)
    ax.set_title(_title(result, trace), loc="left", fontsize="medium")
    return _styled(ax, at_end)


def _title(result: Result, trace: str | None) -> str:
    """The trace, if it is known."""
    name = trace or result.info.get("name") or result.info.get("trace")
    return name if isinstance(name, str) else ""


def _of_trace(table: pa.Table, trace: str | None) -> pa.Table:
    """The rows of one trace."""
    traces = list(dict.fromkeys(table["trace"].to_pylist())) if "trace" in table.column_names else []
    if trace is not None:
        if trace not in traces:
            raise ValueError(f"trace={trace!r}: the result has {', '.join(map(repr, traces[:5])) or 'no column `trace`'}")
        return table.filter(pc.equal(table["trace"], trace))
    if len(traces) > 1:
        raise ValueError(f"the result has {len(traces)} traces: plot one at a time, such as trace={traces[0]!r}")
    return table


def _style(at: int) -> dict[str, Any]:
    """The style of line number ``at``. After six lines the colours come again, dashed."""
    turn, colour = divmod(at, len(COLOURS))
    return {"color": COLOURS[colour], "linewidth": 1.5, "linestyle": ("-", "--", ":")[turn % 3]}


def _errors(rows: pa.Table) -> list[float] | None:
    """The errors of estimates, if there are any."""
    errors: list[float] | None = rows["error"].to_pylist() if "error" in rows.column_names else None
    return errors if errors and None not in errors else None


def _size_axis(ax: matplotlib.axes.Axes, by: str, sizes: list[int]) -> None:
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    span = max(sizes) - min(sizes) if sizes else 0
    if sizes and max(sizes) >= 10 * min(sizes):
        ax.set_xscale("log", base=2)
    elif by == "bytes" and span > 0:
        # About six ticks, at multiples of a power of two.
        ax.xaxis.set_major_locator(MultipleLocator(2.0 ** max(0, span // 6).bit_length()))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if by == "bytes":
        ax.set_xlabel("cache size")
        ax.xaxis.set_major_formatter(lambda value, _: human_bytes(value))
    else:
        ax.set_xlabel("cache size, blocks")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def _axes(ax: matplotlib.axes.Axes | None) -> matplotlib.axes.Axes:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plots need matplotlib: pip install matplotlib") from None
    _, made = plt.subplots(figsize=(7, 4), layout="constrained")
    return made


def _styled(ax: matplotlib.axes.Axes, at_end: dict[str, float] | None = None) -> matplotlib.axes.Axes:
    """``at_end``: the lines' values at their right ends, which is the order of the legend."""
    ax.grid(True, color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(DIM)
    ax.tick_params(colors=DIM)
    handles, labels = ax.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda at: -(at_end or {}).get(labels[at], 0.0))
    # Beside the lines, which it must not cover.
    ax.legend([handles[at] for at in order], [labels[at] for at in order], frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax
