"""A sweep of 12 sizes over one trace: nigh beside libCacheSim, cachetools and cachebox, in seconds of processor time.

The trace is in a file of the oracleGeneral format, which nigh and libCacheSim read; cachetools and cachebox get its keys as
Python integers, and decoding is not counted for them. Each round runs all of them one after the other; the least of each
counts. libCacheSim runs with hash tables as large as it makes them by default, and with smaller ones; both are shown.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import nigh


def write_trace(path: Path, requests: int, blocks: str) -> np.ndarray:
    table = nigh.generate(f"zipf:blocks={blocks}:alpha=0.9", requests=requests).to_arrow()
    ids = table["offset"].to_numpy() // 4096
    records = np.zeros(len(ids), dtype=[("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
    records["id"], records["size"], records["next"] = ids, 1, -1
    path.write_bytes(records.tobytes())
    return ids


def of_nigh(path: Path, policy: str, sizes: list[int]) -> list[float]:
    rows = nigh.sim(nigh.Trace(path), policy, sizes, threads=1).table.to_pylist()
    return [row["miss_ratio"] for row in rows]


def of_libcachesim(path: Path, policy: str, sizes: list[int], hashpower: int) -> list[float]:
    import libcachesim as lcs

    make = {"lru": lcs.LRU, "lirs": lcs.LIRS}[policy]
    ratios = []
    for size in sizes:
        reader = lcs.TraceReader(str(path), lcs.TraceType.ORACLE_GENERAL_TRACE)
        ratios.append(make(cache_size=size, hashpower=hashpower).process_trace(reader)[0])
    return ratios


def of_mapping(keys: list[int], make: Callable[[int], object], sizes: list[int]) -> list[float]:
    ratios = []
    for size in sizes:
        cache = make(size)
        get, put = cache.get, cache.__setitem__  # type: ignore[attr-defined]
        misses = 0
        for key in keys:
            if get(key) is None:
                misses += 1
                put(key, True)
        ratios.append(misses / len(keys))
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--blocks", default="200k")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()

    import cachebox
    import cachetools

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.oracleGeneral"
        ids = write_trace(path, given.requests, given.blocks)
        keys = ids.tolist()
        distinct = len(set(keys))
        sizes = [max(1, round(distinct * share / 100)) for share in (0.5, 1, 2, 3, 5, 8, 12, 20, 30, 40, 60, 80)]
        runs: dict[str, dict[str, Callable[[], list[float]]]] = {
            "lru": {
                "nigh": lambda: of_nigh(path, "lru", sizes),
                "libCacheSim": lambda: of_libcachesim(path, "lru", sizes, 24),
                "libCacheSim, 2^18": lambda: of_libcachesim(path, "lru", sizes, 18),
                "cachebox": lambda: of_mapping(keys, lambda size: cachebox.LRUCache(size), sizes),
                "cachetools": lambda: of_mapping(keys, lambda size: cachetools.LRUCache(size), sizes),
            },
            "lirs": {
                "nigh": lambda: of_nigh(path, "lirs", sizes),
                "libCacheSim": lambda: of_libcachesim(path, "lirs", sizes, 24),
                "libCacheSim, 2^18": lambda: of_libcachesim(path, "lirs", sizes, 18),
            },
        }
        print(f"{len(keys)} requests to {distinct} blocks, 12 sizes; CPU seconds, least of {given.rounds}")
        for policy, contenders in runs.items():
            least: dict[str, float] = {}
            ratios: dict[str, list[float]] = {}
            for _ in range(given.rounds):
                for name, run in contenders.items():
                    start = time.process_time()
                    ratios[name] = run()
                    taken = time.process_time() - start
                    least[name] = min(taken, least.get(name, taken))
            for name, seconds in least.items():
                apart = max(abs(a - b) for a, b in zip(ratios[name], ratios["nigh"]))
                print(
                    f"{policy:5} {name:18} {seconds:8.3f} s  {seconds / least['nigh']:7.1f} x nigh"
                    f"   miss ratios differ by at most {100 * apart:.2f} points"
                )


if __name__ == "__main__":
    main()
