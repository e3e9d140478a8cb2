"""Timed simulation: programs take turns at a cache on modelled devices, under a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from . import _nigh
from ._arguments import POLICIES, Policies, Sizes, count_of, limit_of, names_of, sizes_of, threads_of
from ._progress import bar
from ._result import Result
from ._trace import Trace


def timed(
    traces: Any,
    device: str = "hdd-7200",
    policies: Policies | None = None,
    sizes: Sizes | None = None,
    *,
    think: str = "100%",
    readahead: str = "none",
    scheduler: str = "deadline",
    seed: int = 1,
    ops: str = "all",
    limit: int | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> Result:
    """Simulates how long ``traces`` take with a cache on a modelled ``device``, as ``nigh sim --device`` does.

    * ``traces``: one :class:`Trace`, or what one is made of, or a list of these. Each is a program: it computes, asks, and
      waits for the reply. They begin together and share the cache and the devices.
    * ``device``: a profile that comes with nigh (see :func:`nigh.devices`), a file with one, or one for each volume of the
      traces: ``"0=hdd-7200,1=ssd-sata"``.
    * ``policies``, ``sizes``: as in :func:`nigh.sim`; policies that need the future cannot run.
    * ``think``: how long a program computes before each request: a share of the recorded times (``"100%"``), or a time.
    * ``readahead``: ``"none"``, ``"linux"`` and so on; ``scheduler``: ``"deadline"``, ``"first-come"`` and so on, as the flags of
      ``nigh sim``.
    * ``limit``: the most requests to read of each trace.
    * ``seed``: decides what of the devices is random. The same arguments give the same rows.

    A row for each policy and size. Columns of time: ``execution_s`` (when the last program ended), ``latency_p50_us``,
    ``latency_p99_us`` (of reads and writes, as programs see them), ``idle_share`` (of the programs' time, in which they do
    not wait), ``device_busy_s``. ``Result.info["programs"]`` has the seconds of each program and what it waited.
    """
    names = names_of(POLICIES if policies is None else policies)
    if policies is None:
        names.remove("opt")
    texts = sizes_of(sizes)
    if isinstance(traces, (list, tuple)):
        programs: Sequence[Any] = traces
    else:
        programs = [traces]
    if not programs:
        raise ValueError("traces: there are none")
    opened = [trace if isinstance(trace, Trace) else Trace(trace) for trace in programs]
    with bar(progress, "reading", None, " requests") as update:
        loaded = _nigh.Timed(
            [trace._source for trace in opened], device, think=think, ops=ops, limit=limit_of(limit), progress=update
        )
    total = loaded.steps() * len(names) * len(texts) if all(".." not in text for text in texts) else None
    with bar(progress, "simulating", total, " requests") as update:
        rows, times = loaded.simulate(
            names,
            texts,
            readahead=readahead,
            scheduler=scheduler,
            seed=count_of("seed", seed, 0),
            threads=threads_of(threads),
            progress=update,
        )
    table = pa.Table.from_batches([rows])
    shown = zip(table["policy"].to_pylist(), table["size_blocks"].to_pylist(), times)
    info = {
        "device": device,
        "programs": [
            {"policy": policy, "size_blocks": size, "name": name, "execution_s": end, "waited_s": waited}
            for policy, size, of_run in shown
            for name, end, waited in of_run
        ],
    }
    return Result(table, info=info)


def policies() -> pa.Table:
    """Every policy: ``name``, ``summary``, ``paper``; ``offline`` (needs the future); ``spatial`` (looks at which blocks
    are neighbours on disk); ``params``: a list of ``key``, ``default``, ``values`` and ``doc``."""
    rows = [
        {
            "name": name,
            "summary": summary,
            "paper": paper,
            "offline": offline,
            "spatial": spatial,
            "params": [dict(zip(("key", "default", "values", "doc"), param)) for param in params],
        }
        for name, summary, paper, offline, spatial, params in _nigh.policies()
    ]
    return pa.Table.from_pylist(rows)


def devices() -> pa.Table:
    """The profiles of modelled devices that come with nigh: ``name``, ``title``, ``bytes``."""
    return pa.Table.from_pylist([dict(zip(("name", "title", "bytes"), row)) for row in _nigh.devices()])
