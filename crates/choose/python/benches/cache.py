"""Nanoseconds of a hit: nigh.Cache beside cachebox and cachetools, in one run.

`cargo xtask python cache` runs it with nigh as users get it. Prints the least of all rounds, in which the caches take turns,
and the ratio to cachebox's LRUCache: for keys in a loop, which is the longest way through some policies, and at random.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import cachebox
import cachetools

import nigh

CAPACITY = 1000
LOOKUPS = 20_000


def round_ns(get: Callable[[Any], Any], keys: list[Any]) -> float:
    """Nanoseconds of a look-up, with that of the loop."""
    start = time.perf_counter_ns()
    for key in keys:
        get(key)
    return (time.perf_counter_ns() - start) / len(keys)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    # Shuffled, so that the processor cannot fetch ahead.
    loop = [at * 7919 % CAPACITY for at in range(LOOKUPS)]
    chance = random.Random(1)
    drawn = [chance.randrange(CAPACITY) for _ in range(LOOKUPS)]
    cases: list[tuple[str, Callable[[int], Any], list[int]]] = [
        ("int keys in a loop", int, loop),
        ("int keys at random", int, drawn),
        ("str keys in a loop", str, loop),
        ("tuple keys in a loop", lambda at: (at, str(at)), loop),
    ]
    for kind, of, order in cases:
        caches: dict[str, Any] = {
            "cachebox LRUCache": cachebox.LRUCache(CAPACITY),
            "cachetools LRUCache": cachetools.LRUCache(CAPACITY),
            "dict": {},
        }
        for policy in ["lru", "fifo", "clock", "s3-fifo", "sieve", "arc", "lirs", "clock-pro", "w-tinylfu"]:
            caches[f"nigh {policy}"] = nigh.Cache(CAPACITY, policy)
        stored = [of(at) for at in range(CAPACITY)]
        for cache in caches.values():
            for key in stored:
                cache[key] = key
        # Equal keys that are other objects, as where they come from elsewhere.
        keys = [of(int(str(at))) for at in order]
        best = dict.fromkeys(caches, float("inf"))
        for _ in range(rounds):
            for name, cache in caches.items():
                best[name] = min(best[name], round_ns(cache.get, keys))
        empty = min(round_ns(lambda key: None, keys) for _ in range(rounds))
        print(f"{kind}, {CAPACITY} of them; a call of an empty function takes {empty:.0f} ns")
        for name, ns in best.items():
            print(f"  {name:20} {ns:6.1f} ns a hit  {ns / best['cachebox LRUCache']:5.2f} times cachebox")


if __name__ == "__main__":
    main()
