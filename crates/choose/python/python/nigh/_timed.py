"""Timed simulation: programs take turns at a cache on modelled devices, under a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from . import _nigh
from ._arguments import POLICIES, Policies, Sizes, count_of, limit_of, names_of, sizes_of, threads_of, warmup_of
from ._progress import bar
from ._result import Result
from ._trace import Trace


def timed(
    traces: Any,
    device: str = "hdd-7200",
    policies: Policies | None = None,
    sizes: Sizes | None = None,
    *,
    shared: bool = False,
    pace: str | None = None,
    think: str | None = None,
    readahead: str = "none",
    scheduler: str = "deadline",
    warmup: int | str = 0,
    seed: int = 1,
    ops: str = "all",
    limit: int | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> Result:
    """Simulates how long ``traces`` take with a cache on a modelled ``device``, as ``nigh sim --device`` does.

    * ``traces``: one :class:`Trace`, or what one is made of, or a list of these. Each is a program: it computes, asks, and
      waits for the reply. They begin together and share the cache.
    * ``shared``: equal volumes of several traces are one disk. Otherwise, each trace has disks of its own, as those of different
      machines: the volumes of the first one keep their numbers, and each volume of the others gets the lowest number that is free.
    * ``device``: a profile that comes with nigh (see :func:`nigh.devices`), a file with one, or one for each volume of the
      traces: ``"0=hdd-7200,1=ssd-sata"``.
    * ``policies``, ``sizes``: as in :func:`nigh.sim`; policies that need the future cannot run.
    * ``pace``: when requests are issued: ``"recorded"`` (at the times in the trace, in an open loop), ``"2x"`` (twice as fast) or
      ``"closed"`` (each when the program has the reply to the one before). By default, recorded where a trace has times and is
      not that of a program.
    * ``think``: of a closed loop, how long a program computes before each request: a time such as ``"0.1ms"``, or a share of the time that passed
      in the trace since the request before (``"100%"``, the default).
    * ``readahead``: what is fetched ahead: ``"none"``, ``"auto"``, ``"one-block"``, ``"linux"`` (``"linux:max=128K"``) or ``"extent:64K"``.
    * ``scheduler``: in which order requests go to the device: ``"first-come"``, ``"batch:16"``, ``"elevator"``, ``"look"`` or
      ``"deadline"`` (as in Linux).
    * ``warmup``: references, by all programs together, before counters and clocks start: a number, or a share such as ``"10%"``.
    * ``limit``: the most requests to read of each trace.
    * ``seed``: decides what of the devices is random. The same arguments give the same rows.

    A row for each policy and size. These columns are not those of :class:`Result`:

    ============================================== ==========================================================
    column                                         meaning
    ============================================== ==========================================================
    execution_s                                    seconds until the last program ended
    latency_mean_us, latency_p50_us,               of reads and writes, as programs see them, in microseconds;
    latency_p99_us, latency_p999_us                null if there were none
    idle_share                                     0 to 1: of the programs' time, in which they do not wait; null
                                                   in an open loop
    overloaded                                     whether requests of an open loop came faster than they could
                                                   be replied to
    joined                                         references to blocks that were being loaded; ``hit_ratio``
                                                   counts them as hits
    device_busy_s                                  seconds in which the device worked
    device_requests, device_reads, device_writes   requests to the device
    device_seeks                                   those for which the arm of a disk moved
    device_read_bytes, device_written_bytes        bytes
    mean_request_bytes, mean_sequence_blocks       means; blocks that follow each other on disk are a sequence
    prefetch_issued, prefetch_used,                blocks that read-ahead loaded; those referenced later;
    prefetch_late, prefetch_wasted                 those referenced before they were there; evicted unused
    prefetch_dropped                               blocks that it would have loaded, but that were there already
                                                   or beyond its budget
    prefetch_accuracy                              used of issued, 0 to 1; null if none was issued
    encoded_hits                                   0: contents are not modelled here
    level_1_hits, level_2_hits                     0: levels between memory and device are not modelled here
    ============================================== ==========================================================

    ``Result.info["programs"]`` has the seconds of each program and those that it waited.
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
    if shared and len(programs) == 1:
        raise ValueError("shared: there is one trace, which shares its disks with no other")
    opened = [trace if isinstance(trace, Trace) else Trace(trace) for trace in programs]
    with bar(progress, "reading", None, " requests") as update:
        loaded = _nigh.Timed(
            [trace._source for trace in opened],
            device,
            shared=shared,
            pace=pace,
            think=think,
            ops=ops,
            limit=limit_of(limit),
            progress=update,
        )
    total = loaded.steps() * len(names) * len(texts) if all(".." not in text for text in texts) else None
    with bar(progress, "simulating", total, " requests") as update:
        rows, times = loaded.simulate(
            names,
            texts,
            readahead=readahead,
            scheduler=scheduler,
            warmup=warmup_of(warmup),
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
