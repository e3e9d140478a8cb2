"""Sweeps: many traces against policies and sizes, on threads or on a cluster."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, Union

import pyarrow as pa

from . import _dask, _nigh
from ._arguments import Policies, Sizes, block_size_of, limit_of, names_of, sizes_of, threads_of, warmup_of
from ._nigh import is_uri
from ._progress import bar
from ._result import Result
from ._trace import opener

#: Paths and URIs of traces.
Traces = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]

#: Version that workers and the process that starts a sweep must have in common.
VERSION = f"nigh {_nigh.__version__}, results {_nigh.RESULTS}"


class Answer(NamedTuple):
    """Result of a worker: nothing but text and bytes."""

    version: str
    #: The table as a Parquet file; nothing if the job failed.
    file: bytes | None
    error: str


@dataclass
class Task:
    """One trace against policies and sizes, and what became of it."""

    job: str
    trace: str
    name: str
    key: str = ""
    table: pa.RecordBatch | None = None
    #: Whether there was a result before.
    was_there: bool = False
    #: Whether what was there is not whole.
    damaged: bool = False
    error: str = ""


def sweep(
    traces: Traces,
    policies: Policies,
    sizes: Sizes,
    *,
    executor: Any = None,
    results: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    format: str | None = None,
    columns: str | None = None,
    block_size: int | str | None = None,
    stream: str | None = None,
    action: str | None = None,
    recorded_sizes: bool = False,
    skip_bad: bool = False,
    ops: str = "all",
    collapse: bool = False,
    sample: float | None = None,
    limit: int | None = None,
    warmup: int | str = 0,
    progress: bool | None = None,
) -> Result:
    """Replays each of ``traces`` against ``policies`` and ``sizes``; one job is one trace.

    * ``traces``: paths and URIs (fsspec), with patterns: ``"msr/*.csv.gz"``, ``"s3://bucket/**/*.zst"``; ``?`` is no pattern in
      URIs, and chained URIs (``simplecache::s3://...``) have none. Traces are read where jobs run, and never sent.
    * ``executor``: where jobs run: anything with ``submit``, such as a ``ThreadPoolExecutor`` or, for a cluster, a
      ``dask.distributed.Client`` or what its ``get_executor()`` gives. Workers need the same version of nigh, which every
      answer is checked for; with Dask, also every worker before anything runs. By default, jobs run in ``threads`` threads of this process (one a processor).
    * ``results``: a folder, in which each job's rows are stored as ``KEY.parquet``, by this process. Jobs whose results are
      there do not run, so a sweep that was stopped continues. Keys depend on the content of the trace and on the settings
      (docs/sweep.md).
    * ``format`` to ``skip_bad``: as of :class:`Trace`; ``ops`` to ``warmup`` and ``progress``: as of :func:`sim`.

    The rows are in the order of the traces, with the columns of :func:`sim` and ``trace`` and ``key``. They are the same, byte
    for byte, with every executor and from ``nigh sweep`` of the same version. A job that fails costs no other: ``Result.errors`` has its trace and
    the reason. Ctrl-C cancels the jobs that have not begun.
    """
    if isinstance(traces, (str, os.PathLike)):
        traces = [traces]
    if not all(isinstance(trace, (str, os.PathLike)) for trace in traces):
        raise TypeError("traces: expected paths or URIs; traces in memory cannot be swept: use nigh.sim()")
    settings = {
        "policies": names_of(policies),
        "sizes": sizes_of(sizes),
        "format": format,
        "columns": columns,
        "block_size": block_size_of(block_size),
        "stream": stream,
        "action": action,
        "recorded_sizes": recorded_sizes,
        "skip_bad": skip_bad,
        "ops": ops,
        "collapse": collapse,
        "sample": sample,
        "limit": limit_of(limit),
        "warmup": warmup_of(warmup),
    }
    text = json.dumps(settings)
    tasks = tasks_of((os.fspath(trace), text) for trace in traces)
    folder = None if results is None else _nigh.Folder(os.fspath(results), True)
    find(tasks, folder, threads_of(threads))
    execute(tasks, folder, executor=executor, threads=threads_of(threads), progress=progress)
    return result_of(tasks, None if results is None else os.fspath(results))


def run_job(spec: str | Mapping[str, Any]) -> pa.Table:
    """Runs one job in this process: a pure function of ``spec`` and of the content of the trace.

    ``spec`` is a mapping, or JSON, of ``trace`` (a path or URI), ``policies`` and ``sizes`` (texts), and optionally ``name`` (of
    the trace in rows), ``content`` (which the trace must have, as ``LENGTH-HASH``) and the settings of :func:`sweep`. The table
    has the rows and, as metadata, the settings.
    """
    text = spec if isinstance(spec, str) else json.dumps(dict(spec))
    trace, _ = _nigh.job_trace(text)
    key, file = _run(text, trace, 1, None)
    return pa.Table.from_batches([_decoded(key, file)])


def results(folder: str | os.PathLike[str]) -> Result:
    """All results in a folder of :func:`sweep` or ``nigh sweep``, in the order of their keys. Damaged files are ``errors``."""
    stored = _nigh.Folder(os.fspath(folder), False)
    tasks = []
    for key in stored.keys():
        table, damaged = stored.find(key)
        path = os.fspath(stored.path(key))
        error = "the file is damaged: remove it, or sweep again" if damaged else ""
        tasks.append(Task(job="", trace=path, name=path, key=key, table=table, was_there=table is not None, error=error))
    return result_of(tasks, os.fspath(folder))


def tasks_of(patterns: Iterable[tuple[str, str]], folder: str = "") -> list[Task]:
    """A task for each trace that matches a pattern, with the settings that come with it; paths are relative to ``folder``."""
    traces: list[tuple[str, str]] = []
    for pattern, settings in patterns:
        found = _expand_uri(pattern) if is_uri(pattern) else _nigh.expand(folder, pattern)
        traces += [(trace, settings) for trace in found]
    jobs = _nigh.jobs(traces)
    return [Task(job, *_nigh.job_trace(job)) for job in jobs]


def find(tasks: Sequence[Task], folder: _nigh.Folder | None, threads: int) -> None:
    """Finds the keys of the tasks, and what the folder has of them. A trace that cannot be read is an error of its task."""

    def one(task: Task) -> None:
        try:
            content = _content(task.trace) if is_uri(task.trace) else None
            task.job, task.key = _nigh.identify(task.job, content)
            if folder is not None:
                task.table, task.damaged = folder.find(task.key)
                task.was_there = task.table is not None
        except Exception as error:
            task.error = _reason(error)

    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(one, tasks):
            pass


def execute(
    tasks: Sequence[Task], folder: _nigh.Folder | None, *, executor: Any, threads: int, progress: bool | None
) -> None:
    """Runs the tasks that have neither a table nor an error."""
    waiting = [task for task in tasks if task.table is None and not task.error]
    if not waiting:
        return
    if executor is None:
        stop = threading.Event()
        # The threads that jobs do not need help those that run.
        each = max(1, threads // len(waiting))
        pool = ThreadPoolExecutor(min(threads, len(waiting)))
        try:
            answers = _submitted(waiting, lambda job: pool.submit(_answer_unless, stop, each, job))
            _gather(waiting, answers, folder, progress)
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
        return
    client = _dask.client_of(executor)
    if client is not None:
        _check_workers(client)
        answers = _dask.answers(executor, answer, [task.job for task in waiting])
    elif callable(getattr(executor, "submit", None)):
        answers = _submitted(waiting, lambda job: executor.submit(answer, job))
    else:
        raise TypeError(f"executor: {type(executor).__name__}: expected an object with submit(), such as a ThreadPoolExecutor")
    _gather(waiting, answers, folder, progress)


#: The places of tasks, and their answers or what went wrong, in the order of completion; cancels the rest when it is closed.
Answers = Generator[tuple[int, Union[Answer, Exception]], None, None]


def _submitted(tasks: Sequence[Task], submit: Callable[[str], Future[Answer]]) -> Answers:
    finished: SimpleQueue[tuple[int, Future[Answer]]] = SimpleQueue()
    #: Those whose answers were not taken: an answer is let go when it was.
    futures: set[Future[Answer]] = set()
    try:
        for at, task in enumerate(tasks):
            try:
                future = submit(task.job)
            except Exception as error:
                # A pool whose processes died takes no more.
                yield at, error
                continue
            futures.add(future)
            future.add_done_callback(partial(_put, finished, at))
        while futures:
            at, future = finished.get()
            futures.discard(future)
            try:
                taken: Answer | Exception = future.result()
            except Exception as error:
                taken = error
            del future
            yield at, taken
    finally:
        for future in futures:
            future.cancel()


def _put(finished: SimpleQueue[tuple[int, Future[Answer]]], at: int, future: Future[Answer]) -> None:
    finished.put((at, future))


def _gather(tasks: Sequence[Task], answers: Answers, folder: _nigh.Folder | None, progress: bool | None) -> None:
    with closing(answers), bar(progress, "sweeping", len(tasks), " traces") as update:
        for done, (at, taken) in enumerate(answers, 1):
            _take(tasks[at], taken, folder)
            if update is not None:
                update(done)


def _take(task: Task, taken: Answer | Exception, folder: _nigh.Folder | None) -> None:
    if isinstance(taken, Exception):
        task.error = _reason(taken)
        return
    version, file, error = taken
    if version != VERSION:
        raise RuntimeError(f"a worker has {version}, and this process {VERSION}: install the same package everywhere")
    if file is None:
        task.error = error
        return
    try:
        table = _decoded(task.key, file)
        if folder is not None:
            folder.put(task.key, file)
        task.table = table
    except Exception as problem:
        task.error = _reason(problem)


def answer(job: str) -> Answer:
    """Runs a job on a worker."""
    return _answer(job, 1, None)


def _answer_unless(stop: threading.Event, threads: int, job: str) -> Answer:
    def check(_: int) -> None:
        if stop.is_set():
            raise InterruptedError("stopped")

    return _answer(job, threads, check)


def _answer(job: str, threads: int, progress: Callable[[int], object] | None) -> Answer:
    try:
        trace, _ = _nigh.job_trace(job)
        _, file = _run(job, trace, threads, progress)
        return Answer(VERSION, file, "")
    except Exception as error:
        return Answer(VERSION, None, _reason(error))


def _run(job: str, trace: str, threads: int, progress: Callable[[int], object] | None) -> tuple[str, bytes]:
    remote = (opener(trace), _content(trace)) if is_uri(trace) else None
    return _nigh.run_job(job, remote=remote, threads=threads, progress=progress)


def _decoded(key: str, file: bytes) -> pa.RecordBatch:
    table = _nigh.decode(key, file)
    if table is None:
        raise RuntimeError(f"the result {key} was damaged on its way")
    return table


def _reason(error: BaseException) -> str:
    """An error in one line; of those that are not ours, also what it is."""
    text = " ".join(str(error).split())
    return text if isinstance(error, (ValueError, OSError)) and text else f"{type(error).__name__}: {text}"


def worker_version() -> str:
    """The version on a worker."""
    return VERSION


def _check_workers(client: Any) -> None:
    for worker, version in _dask.on_all_workers(client, worker_version).items():
        if isinstance(version, BaseException):
            raise RuntimeError(f"{worker}: {_reason(version)}: every worker needs the Python package of nigh")
        if version != VERSION:
            raise RuntimeError(f"{worker} has {version}, and this process {VERSION}: install the same package everywhere")


def _filesystem(uri: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise ImportError(f"{uri}: URIs need fsspec: pip install fsspec") from None
    filesystem, path = fsspec.core.url_to_fs(uri)
    return filesystem, path


def _expand_uri(pattern: str) -> list[str]:
    # A question mark begins the query of a URI.
    if "*" not in pattern and "[" not in pattern:
        return [pattern]
    if "::" in pattern:
        raise ValueError(f"{pattern}: a chained URI cannot have a pattern: name each trace")
    filesystem, path = _filesystem(pattern)
    found = [filesystem.unstrip_protocol(path) for path in sorted(filesystem.glob(path)) if not filesystem.isdir(path)]
    if not found:
        raise ValueError(f"{pattern}: no file matches this pattern")
    return found


def _content(uri: str) -> str:
    """The identity of the content of a trace that is named by a URI."""
    filesystem, path = _filesystem(uri)
    length = filesystem.size(path)
    if length is None:
        raise ValueError(f"{uri}: its length is unknown: copy the trace to a place where it is known")
    parts = _nigh.content_parts(length)
    starts, ends = [start for start, _ in parts], [end for _, end in parts]
    return _nigh.content_of_parts(length, filesystem.cat_ranges([path] * len(parts), starts, ends, on_error="raise"))


def result_of(tasks: Sequence[Task], folder: str | None) -> Result:
    """The rows of all tasks in their order."""
    tables = [task.table for task in tasks if task.table is not None]
    notes = []
    for table in tables:
        about = json.loads(table.schema.metadata[b"nigh"])
        notes += [f"{about['trace']['name']}: {note}" for note in about["notes"]]
    notes += [f"{task.name}: the result was damaged" for task in tasks if task.damaged]
    # The settings of one job are not those of all.
    batches = [table.replace_schema_metadata(None) for table in tables]
    info = {
        "traces": len(tasks),
        "replayed": sum(task.table is not None and not task.was_there for task in tasks),
        "already_there": sum(task.was_there for task in tasks),
        "results": folder,
    }
    return Result(
        pa.Table.from_batches(batches) if batches else pa.table({}),
        info=info,
        notes=tuple(notes),
        errors={task.trace: task.error for task in tasks if task.error},
    )
