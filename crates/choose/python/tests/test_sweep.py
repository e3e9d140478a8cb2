"""Sweeps: the same bytes on every executor and from the command line; what is stored, resumed and refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet
import pytest

import nigh
from nigh import _dask, _nigh

POLICIES = ["lru", "lirs"]
SIZES = "1%..20%"


def write_trace(path: Path, seed: int, requests: int = 3_000) -> None:
    table = nigh.generate("zipf:blocks=500", requests=requests, seed=seed, writes=0.2).to_arrow()
    lines = ["op,offset,length"]
    for row in table.to_pylist():
        lines.append(f"{row['op']},{row['offset']},{row['length']}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    for at in range(4):
        write_trace(folder / f"t{at}.csv", at + 1)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".parquet"}


def test_every_executor_gives_the_same_bytes(traces: Path, tmp_path: Path) -> None:
    pattern = str(traces / "t*.csv")
    first = nigh.sweep(pattern, POLICIES, SIZES, threads=1, results=tmp_path / "one")
    assert first.info["replayed"] == 4 and not first.errors
    assert first.table["trace"].unique().to_pylist() == ["t0.csv", "t1.csv", "t2.csv", "t3.csv"]

    def same(name: str, executor: Any) -> None:
        result = nigh.sweep(pattern, POLICIES, SIZES, executor=executor, results=tmp_path / name)
        assert result.table.equals(first.table), name
        assert files(tmp_path / name) == files(tmp_path / "one"), name

    same("threads", None)
    with ThreadPoolExecutor(3) as pool:
        same("pool", pool)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        same("processes", processes)
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", processes=True) as cluster:
        with distributed.Client(cluster) as client:
            same("dask", client.get_executor())
            same("client", client)


def test_the_command_line_gives_the_same_bytes(traces: Path, tmp_path: Path) -> None:
    listed = tmp_path / "SWEEP.toml"
    listed.write_text(f"traces = ['traces/*.csv']\npolicies = {POLICIES}\nsizes = ['{SIZES}']\nwarmup = '10%'\nblock-size = '8K'\n")
    nigh.sweep(str(traces / "*.csv"), POLICIES, SIZES, results=tmp_path / "python", warmup="10%", block_size=8192)
    expected = files(tmp_path / "python")

    def run(program: list[str], folder: str, *more: str) -> str:
        command = [*program, "sweep", str(listed), "--results", str(tmp_path / folder), *more]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    module = [sys.executable, "-m", "nigh"]
    assert "4 replayed, 0 already there, 0 failed" in run(module, "module", "--threads", "2")
    assert files(tmp_path / "module") == expected
    assert run(module, "module", "--dry-run").count("  done  ") == 4
    program = os.environ.get("NIGH_PROGRAM")
    if program is None:
        pytest.skip("NIGH_PROGRAM does not name the program nigh")
    help_text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    if "sweep" not in help_text:
        pytest.skip("the program nigh was built without sweeps")
    assert "4 replayed" in run([program], "program")
    assert files(tmp_path / "program") == expected
    for output in ("--json", "--csv"):
        assert run([program], "program", output) == run(module, "module", output)


def test_a_rerun_does_nothing_and_damage_is_repaired(traces: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    first = nigh.sweep(str(traces / "*.csv"), POLICIES, SIZES, results=folder)
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = nigh.sweep(str(traces / "*.csv"), POLICIES, SIZES, results=folder)
    assert again.info["already_there"] == 4 and again.info["replayed"] == 0
    assert times == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    whole = files(folder)
    name = sorted(whole)[0]
    (folder / name).write_bytes(whole[name][:-100])
    damaged = nigh.results(folder)
    assert list(damaged.errors) == [str(folder / name)] and damaged.info["already_there"] == 3
    repaired = nigh.sweep(str(traces / "*.csv"), POLICIES, SIZES, results=folder)
    assert repaired.info["replayed"] == 1 and any("damaged" in note for note in repaired.notes)
    assert files(folder) == whole and repaired.table.equals(first.table)
    stored = nigh.results(folder)
    assert len(stored) == len(first) and not stored.errors
    assert pa.parquet.read_table(folder).num_rows == len(first)


def test_run_job_is_a_function_of_its_text(traces: Path) -> None:
    spec = {"trace": str(traces / "t0.csv"), "policies": POLICIES, "sizes": [SIZES]}
    table = nigh.run_job(spec)
    assert table.equals(nigh.run_job(json.dumps(spec)))
    assert table.column_names[0] == "trace" and table.column_names[-1] == "key"
    direct = nigh.sim(traces / "t0.csv", POLICIES, SIZES)
    assert table.select(direct.table.column_names).replace_schema_metadata(None).equals(direct.table)
    with pytest.raises(ValueError, match="Did you mean 'policies'"):
        nigh.run_job({"trace": "x", "polices": ["lru"], "sizes": ["5%"]})
    with pytest.raises(FileNotFoundError):
        nigh.run_job({**spec, "trace": "none"})
    with pytest.raises(ValueError, match="another file than where the sweep was started"):
        nigh.run_job({**spec, "content": f"3-{'0' * 32}"})


def test_uris_are_read_where_they_are(traces: Path, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    for at in range(4):
        memory.pipe_file(f"/sweep/t{at}.csv", (traces / f"t{at}.csv").read_bytes())
    here = nigh.sweep(str(traces / "*.csv"), POLICIES, SIZES)
    there = nigh.sweep("memory://sweep/*.csv", POLICIES, SIZES, results=tmp_path / "results")
    assert there.table.equals(here.table)
    with pytest.raises(ValueError, match="no file matches"):
        nigh.sweep("memory://sweep/*.zst", POLICIES, SIZES)
    with pytest.raises(ValueError, match="a chained URI cannot have a pattern"):
        nigh.sweep("simplecache::memory://sweep/*.csv", POLICIES, SIZES)
    chained = nigh.sweep("simplecache::memory://sweep/t0.csv", POLICIES, SIZES)
    assert chained.table.equals(nigh.sweep(traces / "t0.csv", POLICIES, SIZES).table)
    # Of a long one, only parts are read to know it.
    write_trace(tmp_path / "long.csv", 1, 250_000)
    assert (tmp_path / "long.csv").stat().st_size > 4 << 20
    memory.pipe_file("/sweep/long.csv", (tmp_path / "long.csv").read_bytes())
    keys = [
        nigh.sweep(trace, "lru", "10%").table["key"][0].as_py() for trace in ("memory://sweep/long.csv", tmp_path / "long.csv")
    ]
    assert keys[0] == keys[1]


def test_a_job_that_fails_costs_only_itself(traces: Path, tmp_path: Path) -> None:
    (traces / "t9.csv").write_text("op,offset,length\nread,4096,what\n")
    result = nigh.sweep([str(traces / "*.csv"), str(traces / "none.csv")], POLICIES, SIZES, results=tmp_path / "results")
    assert sorted(Path(trace).name for trace in result.errors) == ["none.csv", "t9.csv"]
    assert "what" in result.errors[str(traces / "t9.csv")]
    assert result.info["replayed"] == 4
    with pytest.raises(TypeError, match="in memory cannot be swept"):
        nigh.sweep([nigh.generate("zipf:blocks=100", requests=100)], POLICIES, SIZES)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="block_size = 3"):
        nigh.sweep(str(traces / "*.csv"), POLICIES, SIZES, block_size=3)
    with pytest.raises(TypeError, match="expected an object with submit"):
        nigh.sweep(str(traces / "*.csv"), POLICIES, SIZES, executor=3)


class Direct(Executor):
    """Runs each job when it is submitted, and answers what it is told to."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def submit(self, fn: Any, /, *args: Any, **settings: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(self.answer(fn, *args))
        except Exception as error:
            future.set_exception(error)
        return future


def test_numbers_may_be_those_of_numpy(traces: Path) -> None:
    numpy = pytest.importorskip("numpy")
    plain = nigh.sweep(traces / "t0.csv", POLICIES, SIZES, limit=1_000, block_size=8192)
    assert nigh.sweep(traces / "t0.csv", POLICIES, SIZES, limit=numpy.int64(1_000), block_size=numpy.int32(8192)).table.equals(plain.table)


def test_a_result_that_cannot_be_stored_costs_only_its_job(traces: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"

    def blocking(fn: Any, job: str) -> Any:
        if "t1.csv" in job:
            # A folder cannot be replaced by a file.
            _, key = _nigh.identify(job, None)
            (results / f"{key}.parquet" / "in the way").mkdir(parents=True)
        return fn(job)

    result = nigh.sweep(str(traces / "*.csv"), POLICIES, SIZES, executor=Direct(blocking), results=results)
    assert list(result.errors) == [str(traces / "t1.csv")] and result.info["replayed"] == 3
    assert ".parquet" in result.errors[str(traces / "t1.csv")]
    assert result.table["trace"].unique().to_pylist() == ["t0.csv", "t2.csv", "t3.csv"]


def test_a_worker_with_another_version_is_refused(traces: Path) -> None:
    def old(fn: Any, job: str) -> Any:
        return fn(job)._replace(version="nigh 0.0.1, results 0")

    with pytest.raises(RuntimeError, match="a worker has nigh 0.0.1, results 0"):
        nigh.sweep(str(traces / "*.csv"), POLICIES, SIZES, executor=Direct(old))


def test_a_worker_that_dies_costs_only_its_jobs(traces: Path, tmp_path: Path) -> None:
    def dying(fn: Any, job: str) -> Any:
        if "t1.csv" in job:
            raise OSError("the worker died")
        return fn(job)

    result = nigh.sweep(str(traces / "*.csv"), POLICIES, SIZES, executor=Direct(dying), results=tmp_path / "results")
    assert result.errors == {str(traces / "t1.csv"): "the worker died"}
    again = nigh.sweep(str(traces / "*.csv"), POLICIES, SIZES, results=tmp_path / "results")
    assert again.info["replayed"] == 1 and not again.errors


def test_a_call_that_fails_on_dask_costs_no_other(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")

    def call(at: int) -> int:
        if at % 5 == 3:
            raise OSError(f"call {at}")
        if at >= 20:
            (tmp_path / str(at)).touch()
            time.sleep(0.5)
        return at

    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", processes=False) as cluster:
        with distributed.Client(cluster) as client:
            found = sorted(_dask.answers(client.get_executor(), call, range(20)), key=lambda pair: pair[0])
            assert [at for at, _ in found] == list(range(20))
            for at, answer in found:
                assert repr(answer) == (f"OSError('call {at}')" if at % 5 == 3 else str(at))
            # Those that have not begun are cancelled.
            calls = _dask.answers(client, call, [0, *range(20, 220, 2)])
            assert next(calls) == (0, 0)
            calls.close()
            start = time.monotonic()
            while cluster.scheduler.tasks:
                assert time.monotonic() - start < 30, cluster.scheduler.tasks
                time.sleep(0.05)
            assert len(list(tmp_path.iterdir())) < 50


def test_jobs_are_text(traces: Path) -> None:
    sent: list[str] = []

    def look(fn: Any, job: str) -> Any:
        sent.append(job)
        return fn(job)

    nigh.sweep(str(traces / "*.csv"), POLICIES, SIZES, executor=Direct(look))
    assert len(sent) == 4 and all(isinstance(job, str) and len(job) < 500 for job in sent)
    assert json.loads(sent[0])["trace"] == str(traces / "t0.csv")


def test_ctrl_c_cancels_what_has_not_begun(tmp_path: Path) -> None:
    for at in range(6):
        write_trace(tmp_path / f"t{at}.csv", at + 1, 20_000)
    script = (
        "import nigh, sys\n"
        "policies = ['lru', 'lirs', 'opt', 'arc', 'clock-pro']\n"
        f"nigh.sweep({str(tmp_path / '*.csv')!r}, policies, '1b..400b/1b', threads=1, results={str(tmp_path / 'results')!r})\n"
    )
    running = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    start = time.monotonic()
    while not (tmp_path / "results").exists() and time.monotonic() - start < 60:
        time.sleep(0.01)
    time.sleep(0.5)
    running.send_signal(2)
    _, errors = running.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert len(files(tmp_path / "results")) < 6
