"""``python -m nigh sweep``: ``nigh sweep`` on a cluster of Dask and with URIs; it prints the rows, and compares no policies."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from . import _nigh, _sweep
from ._arguments import threads_of


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m nigh", description="nigh in Python; the program 'nigh' does much more")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    sweep = commands.add_parser("sweep", help="replay many traces, in threads or on a cluster, and keep the results")
    sweep.add_argument("list", metavar="SWEEP.toml", help="the list of traces, policies, sizes and settings")
    where = sweep.add_mutually_exclusive_group()
    where.add_argument("--threads", type=int, metavar="N", help="jobs that run at a time (default: one per processor)")
    where.add_argument("--dask", metavar="ADDRESS", help="run the jobs on the workers of this scheduler, such as tcp://head:8786")
    sweep.add_argument("--results", metavar="FOLDER", help="keep the results here (default: the folder that the list names)")
    output = sweep.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print one JSON object")
    output.add_argument("--csv", action="store_true", help="print a row for each trace, policy and size")
    output.add_argument("--dry-run", action="store_true", help="list the jobs and what there is of their results, and end")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line; the exit code is 1 if jobs failed, and 2 if nothing could be done."""
    given = parser().parse_args(arguments)
    try:
        return sweep(given)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"nigh: {error}", file=sys.stderr)
        return 2


def sweep(given: argparse.Namespace) -> int:
    """The command ``sweep``."""
    traces, list_folder, results = _nigh.sweep_list(given.list)
    path = results if given.results is None else given.results
    threads = threads_of(given.threads)
    tasks = _sweep.tasks_of(traces, list_folder)
    if given.dry_run:
        _sweep.find(tasks, _nigh.Folder(path, False) if os.path.exists(path) else None, threads)
        for task in tasks:
            state = "failed" if task.error else "damaged" if task.damaged else "done" if task.was_there else "open"
            key, what = ("-", f"{task.name}: {task.error}") if task.error else (task.key, task.trace)
            print(f"{key:<32}  {state:<7}  {what}")
        return int(any(task.error for task in tasks))
    folder = _nigh.Folder(path, True)
    _sweep.find(tasks, folder, threads)
    for task in tasks:
        if task.damaged:
            print(f"nigh: note: {folder.path(task.key)}: the result is damaged: {task.name} is replayed again", file=sys.stderr)
    with ExitStack() as stack:
        executor: Any = None
        if given.dask is not None:
            executor = stack.enter_context(_client(given.dask)).get_executor()
        _sweep.execute(tasks, folder, executor=executor, threads=threads, progress=None)
    tables = [task.table for task in tasks if task.table is not None]
    errors = [(task.name, task.error) for task in tasks if task.error]
    # First, in case that who reads the results has gone away.
    for name, error in errors:
        print(f"nigh: {name}: {error}", file=sys.stderr)
    if given.json:
        sys.stdout.write(_nigh.tables_json(tables, errors))
    elif given.csv:
        sys.stdout.write(_nigh.tables_csv(tables))
    else:
        there = sum(task.was_there for task in tasks)
        print(_sweep.result_of(tasks, str(path)))
        print(f"traces: {len(tables) - there} replayed, {there} already there, {len(errors)} failed; results in {path}")
    return int(bool(errors))


def _client(address: str) -> Any:
    """A client of the Dask cluster with this scheduler."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise ImportError("--dask needs distributed: pip install distributed") from None
    return distributed.Client(address)


if __name__ == "__main__":
    sys.exit(main())
