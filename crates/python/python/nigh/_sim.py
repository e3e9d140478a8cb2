"""Replay of a trace against policies and sizes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ._arguments import POLICIES, Policies, Sizes, names_of, sizes_of, threads_of, warmup_of
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
      :class:`nigh.Policy`; see :func:`nigh.policies`.
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
    references = trace._load(ops=ops, collapse=collapse, sample=sample, limit=limit, progress=progress)
    names, texts = names_of(policies), sizes_of(sizes)
    if exact_lru and "lru" not in names:
        raise ValueError("exact_lru counts LRU's hits: add 'lru' to the policies")
    with bar(progress, "replaying", references.steps(names, texts, exact_lru), " references") as update:
        rows, curve, series, cpu_s = references.replay(
            names,
            texts,
            warmup=warmup_of(warmup),
            threads=threads_of(threads),
            exact_lru=exact_lru,
            internals=internals,
            progress=update,
        )
    return Result(
        pa.Table.from_batches([rows]),
        info={"trace": trace.name, "format": trace.format, **references.info()},
        curve=None if curve is None else pa.Table.from_batches([curve]),
        internals=None if internals is None else pa.Table.from_batches([series]),
        notes=tuple(references.notes),
        cpu_s=cpu_s,
    )
