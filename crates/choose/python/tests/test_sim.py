"""Replay: against a naive LRU, against the command line's figures, and what is refused."""

from __future__ import annotations

import gzip
import os
import threading
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nigh
from conftest import interrupt


def naive_lru(blocks: list[int], size: int) -> int:
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for block in blocks:
        if block in cache:
            hits += 1
            cache.move_to_end(block)
            continue
        if len(cache) == size:
            cache.popitem(last=False)
        cache[block] = None
    return hits


def trace_of(blocks: list[int]) -> nigh.Trace:
    return nigh.Trace({"offset": pa.array([block * 4096 for block in blocks], pa.uint64())})


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=300), st.integers(1, 40))
def test_lru_is_that_of_a_naive_program(blocks: list[int], size: int) -> None:
    trace = trace_of(blocks)
    (row,) = nigh.sim(trace, "lru", size).table.to_pylist()
    assert (row["hits"], row["references"], row["size_blocks"]) == (naive_lru(blocks, size), len(blocks), size)
    curve = {row["size_blocks"]: row["hits"] for row in trace.mrc("lru").table.to_pylist()}
    at = max((corner for corner in curve if corner <= size), default=None)
    assert (curve[at] if at else 0) == naive_lru(blocks, size)


def recorded(name: str) -> Path:
    path = Path(os.environ.get("NIGH_TRACES", "")) / name
    if "NIGH_TRACES" not in os.environ or not path.exists():
        pytest.skip(f"NIGH_TRACES names no folder with {name}")
    return path


def test_exact_hits_of_recorded_programs() -> None:
    """Counted by independent programs: reads of pages of 4 KiB without files in /etc, a cache of half of the pages."""
    counts = {
        "sqlite": ([1, 2], 57_355, 11_589, 4, 28_973),
        "gcc_build": ([0], 41_683, 1_702, 12_729, 38_631),
        "grep_loop": ([0], 25_395, 14_681, 0, 7_340),
    }
    for name, (etc, references, pages, lru, opt) in counts.items():
        requests = nigh.Trace(recorded(f"pc/{name}.csv.gz")).to_arrow()
        trace = nigh.Trace(requests.filter(~pc.field("volume").isin(etc)))
        result = nigh.sim(trace, ["lru", "opt"], pages // 2, ops="reads", collapse=True)
        assert result.info["distinct_blocks"] == pages
        rows = {row["policy"]: row for row in result.table.to_pylist()}
        assert (rows["lru"]["references"], rows["lru"]["hits"], rows["opt"]["hits"]) == (references, lru, opt), name


def test_lirs_is_that_of_its_authors() -> None:
    """multi1 at 600 to 2000 blocks: hit ratios of the authors' own program, %."""
    published = [58.2, 63.3, 68.4, 73.4, 78.4, 82.6, 83.1, 83.4]
    rows = nigh.sim(nigh.Trace(recorded("lirs/multi1.trace.gz")), "lirs", "600b..2000b/200b").table.to_pylist()
    assert [100 * row["hit_ratio"] for row in rows] == pytest.approx(published, abs=0.5)


def test_all_policies_at_several_sizes_are_the_same_in_any_number_of_threads() -> None:
    trace = nigh.generate("zipf:blocks=2k+loop:blocks=500", requests=30_000, writes=0.2)
    one = nigh.sim(trace, sizes="1%..40%", threads=1)
    many = nigh.sim(trace, sizes="1%..40%", threads=3)
    assert one.table.equals(many.table)
    hits = {(row["policy"], row["size_blocks"]): row["hits"] for row in one.table.to_pylist()}
    assert all(hits["opt", size] >= hits[policy, size] for policy, size in hits)
    assert one.info["requests"] == 30_000 and one.cpu_s is not None and one.cpu_s > 0


def test_results_go_where_people_want_them() -> None:
    result = nigh.sim(nigh.generate("zipf:blocks=500", requests=5000), ["lru", "lirs"], "1%..50%")
    frame, polars = result.to_pandas(), result.to_polars()
    assert list(frame.columns) == polars.columns == result.table.column_names
    assert frame["hits"].tolist() == polars["hits"].to_list() == result.table["hits"].to_pylist()
    assert pa.table(result).equals(result.table)
    assert "lirs" in repr(result)


def test_a_small_sample_is_noted() -> None:
    result = nigh.sim(nigh.generate("zipf:blocks=1k", requests=10_000), "lru", "10%", sample=0.1)
    assert len(result.notes) == 1 and "sample at a higher rate" in result.notes[0]
    assert f"note: {result.notes[0]}" in repr(result)


def test_a_sampled_curve_estimates_the_whole_trace() -> None:
    """The most popular blocks are in the sample or not, so the hits of the sample alone are far from those of the trace."""
    trace = nigh.generate("zipf:blocks=100k", requests=1_000_000)
    sizes = [2_000, 10_000, 40_000]
    exact = [row["hit_ratio"] for row in nigh.sim(trace, "lru", sizes).table.to_pylist()]
    estimated = nigh.sim(trace, "lru", sizes, sample=0.1).table.to_pylist()
    curve = trace.mrc("lru", sample=0.1).table.to_pylist()
    for size, hit_ratio, row in zip(sizes, exact, estimated):
        corner = [corner for corner in curve if corner["size_blocks"] <= size][-1]
        assert abs(corner["hit_ratio"] - hit_ratio) <= 1.5 * corner["error"] < 0.05
        assert abs(corner["hit_ratio"] - row["hit_ratio"]) < 0.001
        # One is estimated from sixteen groups of blocks, the other from every block.
        assert corner["error"] == pytest.approx(row["error"], rel=0.3)
        assert corner["hit_ratio"] + corner["miss_ratio"] == pytest.approx(1)
    assert {row["error"] for row in trace.mrc("lru").table.to_pylist()} == {None}


def test_a_sample_estimates() -> None:
    trace = nigh.generate("zipf:blocks=50k:alpha=0.8", requests=400_000)
    exact = nigh.sim(trace, "lirs", "10%").table.to_pylist()[0]
    estimate = nigh.sim(trace, "lirs", "10%", sample=0.1).table.to_pylist()[0]
    assert estimate["error"] is not None and exact["error"] is None
    assert abs(exact["hit_ratio"] - estimate["hit_ratio"]) < max(0.03, 2 * estimate["error"])


def test_internals_over_time() -> None:
    result = nigh.sim(nigh.generate("zipf:blocks=500", requests=9000), ["lirs"], ["5%", "10%"], internals=("10%", 20))
    assert result.internals is not None
    quantities = result.internals.to_pandas()
    assert set(quantities["policy"]) == {"lirs"} and quantities["references"].max() == 9000
    assert quantities.groupby("quantity").size().min() >= 19


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"policies": "lirs2"}, "unknown policy"),
        ({"policies": "lirs:hir=200%"}, "hir"),
        ({"policies": []}, "there are none"),
        ({"sizes": "10"}, "has no unit"),
        ({"sizes": 0}, "at least one block"),
        ({"sizes": []}, "there are none"),
        ({"sizes": "5%..1%"}, "ends before it begins"),
        ({"ops": "read"}, "expected all, reads or writes"),
        ({"sample": 0.0}, "above 0"),
        ({"warmup": "100%"}, "below 100%"),
        ({"warmup": 100_000}, "only 1000 references"),
        ({"threads": 0}, "at least 1"),
        ({"limit": 0}, "limit=0: expected at least 1"),
        ({"limit": -3}, "limit=-3: expected at least 1"),
        ({"internals": ("7%", 10), "sizes": "5%"}, "not among the sizes"),
        ({"exact_lru": True, "policies": "lirs"}, "add 'lru'"),
        ({"policies": "dulo", "sample": 0.5}, "neighbours on disk"),
        ({"ops": "writes"}, "nothing to replay"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], says: str) -> None:
    trace = nigh.generate("uniform:blocks=100", requests=1000)
    with pytest.raises(ValueError) as raised:
        nigh.sim(trace, **{"policies": "lru", "sizes": "5%", **arguments})  # type: ignore[arg-type]
    assert says in str(raised.value)


def test_wrong_types() -> None:
    trace = nigh.generate("uniform:blocks=100", requests=1000)
    for arguments in ({"sizes": 1.5}, {"sizes": [None]}, {"policies": [3]}, {"limit": "all"}):
        with pytest.raises(TypeError):
            nigh.sim(trace, **arguments)  # type: ignore[arg-type]


def test_ctrl_c_ends_a_replay() -> None:
    script = """
import nigh

trace = nigh.generate("zipf:blocks=300k", requests=10_000_000)
print(trace.info(), flush=True)
nigh.sim(trace, "lrfu,lru-2,eelru", "1%..80%", threads=1)
"""
    errors, seconds = interrupt(script)
    assert errors.rstrip().endswith("KeyboardInterrupt") and seconds < 5, (errors, seconds)


def test_the_interpreter_goes_on_meanwhile() -> None:
    trace = nigh.generate("zipf:blocks=100k", requests=1_000_000)
    trace.info()
    counted = 0
    done = threading.Event()

    def work() -> None:
        nigh.sim(trace, "lirs,lrfu", "1%..20%", threads=1)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        counted += 1
    thread.join()
    assert counted > 10_000


def test_progress_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    trace = nigh.generate("zipf:blocks=300k", requests=3_000_000)
    nigh.sim(trace, "lrfu,lirs,lru-2", "5%,20%,40%".split(","), threads=1, progress=True)
    assert "replaying" in capsys.readouterr().err


def test_compressed_traces(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"time,offset,length,op\n0,0,4096,read\n1,4096,4096,write\n2,0,4096,read\n"))
    trace = nigh.Trace(path, columns="time=time,offset=offset,length=length,op=op,time-unit=s,offset-unit=bytes,length-unit=bytes")
    assert trace.info()["requests"] == 3
    assert nigh.sim(trace, "lru", 2).table["hits"].to_pylist() == [1]


def test_sizes_are_a_text_with_commas_or_a_number() -> None:
    trace = nigh.generate("loop:blocks=1k", requests=5_000)
    assert nigh.sim(trace, "lru", "5%, 20%").table["size_blocks"].to_pylist() == [50, 200]
    assert nigh.sim(trace, "lru", 70).table["size_blocks"].to_pylist() == [70]


def test_a_notebook_shows_a_table() -> None:
    trace = nigh.generate("loop:blocks=1k", requests=5_000)
    shown = nigh.sim(trace, "lru,lirs", "5%,20%")._repr_html_()
    assert shown.count("<tr>") == 3 and "<th>lirs</th>" in shown and "200 KiB" in shown
    timed = nigh.timed(trace, "ssd-nvme", "lru", "5%")
    assert "<td>lru</td>" in nigh.Result(timed.table.select(["policy", "execution_s"]))._repr_html_()
