"""Hits of nigh's policies beside those of libCacheSim, on the same references.

Each trace is rewritten as one request for each block that it refers to, in the oracleGeneral format, which both read. Policies whose
rules are the same must have the same hits, to the last one; the others are printed with their difference in points. Ends with 1
if one of the former differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import nigh

# nigh's policy, libCacheSim's class, and whether both follow the same rules.
POLICIES = (
    ("fifo", "FIFO", True),
    ("lru", "LRU", True),
    ("clock", "Clock", True),
    ("sieve", "Sieve", True),
    ("arc", "ARC", True),
    ("2q", "TwoQ", True),
    ("lfu", "LFU", True),
    ("opt", "Belady", True),
    ("s3-fifo:warmup=main", "S3FIFO", True),
    ("s3-fifo", "S3FIFO", False),
    ("w-tinylfu", "WTinyLFU", False),
    ("mq", "MQ", False),
    ("lirs", "LIRS", False),
    ("clock-pro", "ClockPro", False),
    ("random", "Random", False),
    ("lecar", "LeCaR", False),
    ("cacheus", "Cacheus", False),
    ("hyperbolic", "Hyperbolic", False),
)
SHARED = Path(__file__).parents[5] / "shared/traces"
USUAL = (
    "lirs/2_pools.trace.gz", "lirs/cpp.trace.gz", "lirs/cs.trace.gz", "lirs/gli.trace.gz", "lirs/multi1.trace.gz",
    "block/OLTP.lis.zst", "block/P3.lis.zst", "block/cloudPhysicsIO.vscsi.zst",
)  # fmt: skip


def references(path: Path, block: int) -> np.ndarray:
    """The blocks that the reads and writes of a trace refer to, in order, numbered through all volumes."""
    table = nigh.Trace(path).to_arrow().to_pandas()
    table = table[table["op"].isin(["read", "write"]) & (table["length"] > 0)]
    first = table["offset"].to_numpy(np.uint64) // block
    last = (table["offset"].to_numpy(np.uint64) + table["length"].to_numpy(np.uint64) - 1) // block
    counts = (last - first + 1).astype(np.int64)
    starts = np.repeat(first, counts)
    steps = np.arange(counts.sum(), dtype=np.uint64) - np.repeat(np.cumsum(counts) - counts, counts).astype(np.uint64)
    volumes = np.repeat(table["volume"].to_numpy(np.uint64), counts)
    return (volumes << np.uint64(40)) + starts + steps


def write(path: Path, blocks: np.ndarray) -> None:
    """A request of one byte for each block, with the position of the next one for it, which Belady's algorithm needs."""
    records = np.zeros(len(blocks), dtype=[("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
    # 0 is no block to libCacheSim.
    records["id"], records["size"], records["next"] = blocks + np.uint64(1), 1, -1
    order = np.lexsort((np.arange(len(blocks)), blocks))
    same = blocks[order[1:]] == blocks[order[:-1]]
    records["next"][order[:-1][same]] = order[1:][same]
    path.write_bytes(records.tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*", type=Path, help="by default, the traces beside the repository")
    parser.add_argument("--block-size", type=int, default=4096)
    parser.add_argument("--sizes", default="2,10,40", help="shares of the distinct blocks, in percent")
    given = parser.parse_args()
    import libcachesim as lcs

    traces = given.traces or [SHARED / name for name in USUAL if (SHARED / name).exists()]
    if not traces:
        sys.exit(f"no trace: {SHARED} is not there, so name some")
    equal = compared = wrong = 0
    worst: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.oracleGeneral"
        for trace in traces:
            blocks = references(trace, given.block_size)
            write(path, blocks)
            distinct = len(np.unique(blocks))
            sizes = [max(2, int(distinct * float(share) / 100)) for share in given.sizes.split(",")]
            rows = nigh.sim(nigh.Trace(path), [name for name, *_ in POLICIES], sizes).table.to_pylist()
            ours = {(row["policy"], row["size_blocks"]): row["hits"] for row in rows}
            print(f"{trace.name}: {len(blocks):,} references to {distinct:,} blocks of {given.block_size} bytes", flush=True)
            for name, rival, same in POLICIES:
                cells = []
                for size in sizes:
                    reader = lcs.TraceReader(str(path), lcs.TraceType.ORACLE_GENERAL_TRACE)
                    misses, _ = getattr(lcs, rival)(cache_size=size).process_trace(reader)
                    theirs = round((1 - misses) * len(blocks))
                    hits = ours[name, size]
                    points = 100 * (hits - theirs) / len(blocks)
                    cells.append(f"{100 * hits / len(blocks):6.2f} " + ("  equal" if hits == theirs else f"{points:+7.2f}"))
                    if same:
                        compared, equal, wrong = compared + 1, equal + (hits == theirs), wrong + (hits != theirs)
                    elif abs(points) > abs(worst.get(name, 0.0)):
                        worst[name] = points
                print(f"  {name:<20}" + "   ".join(cells), flush=True)
    print(f"{equal} of {compared} hit ratios of policies with the same rules are equal to the last hit")
    print("largest differences of the others, in points: " + ", ".join(f"{name} {points:+.2f}" for name, points in worst.items()))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
