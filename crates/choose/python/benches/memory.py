"""100 million requests in Arrow columns, replayed: the peak of memory against the size of the columns."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import nigh


def peak() -> int:
    """The most memory that this process has had resident, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def batches(requests: int, distinct: int, all_columns: bool) -> list[pa.RecordBatch]:
    made = []
    random = np.random.default_rng(1)
    rows = 1 << 20
    for first in range(0, requests, rows):
        count = min(rows, requests - first)
        blocks = (random.random(count) ** 3 * distinct).astype(np.uint64)
        columns = {"offset": blocks * np.uint64(4096)}
        if all_columns:
            columns |= {
                "time_ns": np.arange(first, first + count, dtype=np.uint64) * np.uint64(1000),
                "op": np.full(count, 1, np.uint8),
                "volume": np.full(count, 1, np.uint32),
                "length": np.full(count, 4096, np.uint32),
                "tenant": np.full(count, 1, np.uint32),
                "stream": np.full(count, 1, np.uint64),
                "latency_ns": np.full(count, 1, np.uint64),
            }
        made.append(pa.record_batch({name: pa.array(values) for name, values in columns.items()}))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000_000)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--offsets-only", action="store_true", help="a table with the column `offset` alone")
    given = parser.parse_args()
    table = pa.Table.from_batches(batches(given.requests, given.blocks, not given.offsets_only))
    before = peak()
    print(f"{table.num_rows} rows, columns of {table.nbytes / 1e6:.0f} MB; peak so far {before / 1e6:.0f} MB")
    start = time.process_time()
    result = nigh.sim(table, ["lru", "lirs", "clock-pro"], "10%", threads=1)
    taken = time.process_time() - start
    for row in result.table.to_pylist():
        print(f"  {row['policy']:10} hit ratio {row['hit_ratio']:.4f}")
    print(f"replayed in {taken:.1f} CPU s; peak {peak() / 1e6:.0f} MB: {peak() / table.nbytes:.3f} times the columns")


if __name__ == "__main__":
    main()
