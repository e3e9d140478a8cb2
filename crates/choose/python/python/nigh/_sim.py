"""Replay of a trace against policies and sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ._arguments import POLICIES, Policies, Sizes, limit_of, policies_of, sizes_of, threads_of, warmup_of
from ._progress import bar
from ._result import Result
from ._trace import Trace


def sim(
    trace: Any,
    policies: Policies = POLICIES,
    sizes: Sizes | None = None,
    *,
    ops: str = "all",
    collapse: bool = False,
    sample: float | None = None,
    limit: int | None = None,
    warmup: int | str = 0,
    threads: int | None = None,
    exact_lru: bool = False,
    internals: tuple[str, int] | None = None,
    progress: bool | None = None,
) -> Result:
    """Replays ``trace`` against each of ``policies`` at each of ``sizes``, as ``nigh sim`` does.

    * ``trace``: a :class:`Trace`, or what one is made of.
    * ``policies``: names with parameters, such as ``"lirs"`` or ``"lirs:hir=5%"``, and classes derived from
      :class:`nigh.Policy`; see :func:`nigh.policies`. Policies written in Python run one after the other, after the others.
    * ``sizes``: text such as ``"5%"`` (of the distinct blocks), ``"64M"`` (bytes), ``"1000b"`` (blocks), ranges of these
      (``"64M..4G"`` doubles, ``"100b..1000b/100b"`` goes in steps), or numbers of blocks; or a list of these.
    * ``ops``: which requests count as references: ``"all"``, ``"reads"`` or ``"writes"``.
    * ``collapse``: drop references of a tenant that repeat its last one.
    * ``sample``: the share of the blocks that is replayed, above 0 and up to 1; ratios are then estimates with ``error``.
    * ``limit``: the most requests to read.
    * ``warmup``: references that are replayed but not counted: a number, or a share such as ``"10%"``.
    * ``threads``: by default one a processor. The interpreter's lock is released meanwhile.
    * ``exact_lru``: also count LRU's hits at every size (``Result.curve``).
    * ``internals``: one of the sizes, and how often the policies' internal quantities are read there
      (``Result.internals``).
    * ``progress``: whether to show a bar (tqdm); by default on a terminal and in notebooks.

    The rows are those of ``nigh sim --json``, and the same arguments give the same bytes.
    """
    if not isinstance(trace, Trace):
        trace = Trace(trace)
    references = trace._load(ops=ops, collapse=collapse, sample=sample, limit=limit_of(limit), progress=progress)
    chosen, texts = policies_of(policies), sizes_of(sizes)
    native = [name for name, factory in chosen.items() if factory is None]
    if exact_lru and "lru" not in native:
        raise ValueError("exact_lru counts LRU's hits: add 'lru' to the policies")
    # The replay of the native policies, and that of each other one.
    steps = references.steps(native, texts, exact_lru)
    total = steps[0] + steps[1] * (len(chosen) - len(native))
    with bar(progress, "replaying", total, " references") as update:
        rows, curve, series, cpu_s = references.replay(
            native,
            texts,
            warmup=warmup_of(warmup),
            threads=threads_of(threads),
            exact_lru=exact_lru,
            internals=internals,
            progress=update,
        )
        tables = {name: rows.slice(at * _each(rows, native), _each(rows, native)) for at, name in enumerate(native)}
        all_series = [series]
        done = steps[0]
        for name, factory in chosen.items():
            if factory is None:
                continue
            tables[name], series, seconds = references.replay_policy(
                factory,
                name,
                texts,
                warmup=warmup_of(warmup),
                internals=internals,
                progress=None if update is None else _from(update, done),
            )
            all_series.append(series)
            cpu_s += seconds
            done += steps[1]
    if len(native) < len(chosen):
        rows = pa.Table.from_batches([tables[name] for name in chosen]).combine_chunks().to_batches()[0]
    return Result(
        pa.Table.from_batches([rows]),
        info={"trace": trace.name, "format": trace.format, **references.info()},
        curve=None if curve is None else pa.Table.from_batches([curve]),
        internals=None if internals is None else pa.Table.from_batches(all_series),
        notes=tuple(references.notes),
        cpu_s=cpu_s,
    )


def _each(rows: pa.RecordBatch, policies: list[str]) -> int:
    """The rows of each of the policies."""
    return int(rows.num_rows) // len(policies)


def _from(update: Callable[[int], None], before: int) -> Callable[[int], None]:
    """Callback that reports progress after ``before`` references."""
    return lambda done: update(before + done)
