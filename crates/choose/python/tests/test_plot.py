"""Plots: what is on the axes, and that nothing lies over the lines."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import nigh

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

from nigh import plot  # noqa: E402


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    plt.close("all")


def ticks(ax: Any) -> list[str]:
    ax.figure.canvas.draw()
    low, high = ax.get_xlim()
    return [label.get_text() for label in ax.get_xticklabels() if low <= label.get_position()[0] <= high]


def trace() -> nigh.Trace:
    return nigh.generate("zipf:blocks=5k", requests=50_000)


def test_lines_have_the_colours_of_the_page_and_opt_is_dashed() -> None:
    result = nigh.sim(trace(), "lru,lirs,opt", ["5%", "20%"], internals=("20%", 20))
    lines = {line.get_label(): line for line in result.plot().get_lines()}
    assert set(lines) == {"lru", "lirs", "opt"}
    assert (lines["lru"].get_color(), lines["lirs"].get_color()) == plot.COLOURS[:2]
    assert lines["opt"].is_dashed() and not lines["lru"].is_dashed()
    assert len(plot.internals(result).get_lines()) > 2
    plot.times(nigh.timed(trace(), "ssd-nvme", "lru,lirs", ["5%", "20%"]))
    with pytest.raises(ValueError, match="no column `execution_s`"):
        plot.times(result)
    with pytest.raises(ValueError, match="by='pages'"):
        result.plot(by="pages")


def test_sizes_have_units_and_legible_ticks() -> None:
    doubling = nigh.sim(trace(), "lru", "1M..16M").plot()
    assert doubling.get_xscale() == "log" and "4 MiB" in ticks(doubling)
    steps = nigh.sim(trace(), "lru", "4M..12M/2M").plot()
    assert steps.get_xscale() == "linear" and {"4 MiB", "8 MiB", "12 MiB"} <= set(ticks(steps))
    blocks = nigh.sim(trace(), "lru", "1000b..4000b/500b").plot(by="blocks")
    assert "3,000" in ticks(blocks) and len(ticks(blocks)) <= 8
    assert nigh.sim(trace(), "lru", "64K").plot().get_lines()
    assert [plot.human_bytes(count) for count in (512, 65536, 3 << 29)] == ["512 B", "64 KiB", "1.5 GiB"]


def test_lines_can_be_told_apart_in_grey_and_the_legend_is_in_their_order() -> None:
    result = nigh.sim(trace(), "fifo,lru,lirs,opt", "5%,20%")
    ax = result.plot()
    markers = [line.get_marker() for line in ax.get_lines() if line.get_label() != "opt"]
    assert len(set(markers)) == 3 and "None" not in markers
    best = sorted(ax.get_lines(), key=lambda line: -line.get_ydata()[-1])
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [line.get_label() for line in best]
    assert ax.get_title(loc="left") == "zipf:blocks=5k"
    assert nigh.plot is plot


def test_the_legend_is_beside_the_lines() -> None:
    ax = nigh.sim(trace(), sizes=["5%", "50%"]).plot()
    ax.figure.canvas.draw()
    legend = ax.get_legend()
    assert legend is not None
    assert legend.get_window_extent().x0 >= ax.get_window_extent().x1


def test_a_sample_has_its_confidence_interval() -> None:
    assert len(plot.hit_ratios(nigh.sim(trace(), "lru,lirs", ["5%", "20%"], sample=0.5)).collections) == 2
    assert not nigh.sim(trace(), "lru,lirs", ["5%", "20%"]).plot().collections


def test_one_trace_of_several_is_plotted() -> None:
    table = nigh.sim(trace(), "lru,lirs", ["5%", "20%"]).table
    names = pa.array(["a"] * table.num_rows + ["b"] * table.num_rows)
    both = nigh.Result(pa.concat_tables([table, table]).append_column("trace", names))
    assert len(both.plot(trace="b").get_lines()) == 2
    with pytest.raises(ValueError, match="2 traces: plot one at a time, such as trace='a'"):
        both.plot()
    with pytest.raises(ValueError, match="trace='c': the result has 'a', 'b'"):
        both.plot(trace="c")
    with pytest.raises(ValueError, match="no column `trace`"):
        nigh.sim(trace(), "lru", "5%").plot(trace="a")
