"""Schemes for several cache levels, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ._arguments import limit_of, names_of, sizes_of, threads_of, warmup_of
from ._progress import bar
from ._result import Result
from ._trace import Trace

#: Schemes unless others are named: those of ``nigh sim --levels``.
SCHEMES = ("ulc", "unilru", "indlru", "ind:lru/mq", "ind:lirs")


def levels(
    trace: Any,
    sizes: Sequence[str | int],
    schemes: str | Sequence[str] = SCHEMES,
    *,
    costs_ms: Sequence[float] | None = None,
    ops: str = "all",
    collapse: bool = False,
    limit: int | None = None,
    warmup: int | str = 0,
    threads: int | None = None,
    progress: bool | None = None,
) -> Result:
    """Compares schemes for cache levels, the first level first, as ``nigh sim --levels`` does.

    * ``sizes``: one for each level, as in :func:`nigh.sim`.
    * ``schemes``: ``"ulc"`` (unified level-aware caching: Jiang, dissertation, 2004, chapter 5), ``"unilru"`` (one LRU stack
      over all levels; Wong and Wilkes, USENIX 2002), ``"indlru"``, ``"ind:POLICY"`` or ``"ind:POLICY/POLICY"`` (levels that
      know nothing of each other).
    * ``costs_ms``: milliseconds of a hit at each level and of a miss; then there is a column ``mean_ms``.

    A row for each scheme: ``scheme``, ``references``, ``misses``, ``transit_hits``, ``hits_1``, ``hits_2`` and so on by
    level, ``demotions_1`` and so on: blocks moved from that level to the next lower one.
    """
    if not isinstance(trace, Trace):
        trace = Trace(trace)
    names, texts = names_of(schemes), sizes_of(sizes)
    if costs_ms is not None:
        if len(costs_ms) != len(texts) + 1:
            text = f"costs_ms: expected {len(texts) + 1} times, one for a hit at each level and one for a miss"
            raise ValueError(f"{text}, but found {len(costs_ms)}")
        if not all(cost >= 0 for cost in costs_ms) or sorted(costs_ms) != list(costs_ms):
            raise ValueError("costs_ms: a lower level is faster than the one above it; expected ascending times")
    references = trace._load(ops=ops, collapse=collapse, limit=limit_of(limit), progress=progress)
    info = references.info()
    total = int(info["replayed_references"] or 0) * len(names)
    with bar(progress, "replaying", total, " references") as update:
        runs = references.levels(
            names,
            texts,
            costs_ms=None if costs_ms is None else list(costs_ms),
            warmup=warmup_of(warmup),
            threads=threads_of(threads),
            progress=update,
        )
    rows = []
    for name, hits, misses, demotions, transit, mean_ms in runs:
        row: dict[str, Any] = {"scheme": name, "references": sum(hits) + misses, "misses": misses, "transit_hits": transit}
        row |= {f"hits_{level}": count for level, count in enumerate(hits, 1)}
        row |= {f"demotions_{level}": count for level, count in enumerate(demotions, 1)}
        if mean_ms is not None:
            row["mean_ms"] = mean_ms
        rows.append(row)
    return Result(pa.Table.from_pylist(rows), info={"trace": trace.name, **info}, notes=tuple(references.notes))
