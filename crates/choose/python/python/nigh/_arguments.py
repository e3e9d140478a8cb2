"""Sizes, policies and warm-ups of users, in the form of the native half."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Union

from . import _nigh
from ._policy import Factory, name_of

Sizes = Union[str, int, Sequence[Union[str, int]]]
#: Names of policies, and policies written in Python.
Policies = Union[str, Factory, Sequence[Union[str, Factory]]]

#: Policies unless others are named: those of ``nigh sim``.
POLICIES = ("lru", "clock", "2q", "arc", "lirs", "clock-pro", "s3-fifo", "sieve", "w-tinylfu", "opt")
#: The sizes unless any are given, in shares of the distinct blocks.
SIZES = ("1%", "2%", "5%", "10%", "20%", "30%", "40%", "60%", "80%")


def sizes_of(sizes: Sizes | None) -> list[str]:
    """Sizes as text; a number is a number of blocks. A text may have several, between commas."""
    if sizes is None:
        return list(SIZES)
    if isinstance(sizes, str):
        return [size.strip() for size in sizes.split(",")]
    if isinstance(sizes, int):
        sizes = [sizes]
    return [_size(size) for size in sizes]


def _size(size: str | int) -> str:
    if isinstance(size, str):
        return size
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise TypeError(f"sizes: {size!r}: expected text such as '5%' or '64M', or a number of blocks")
    blocks = size.__index__()
    if blocks < 1:
        raise ValueError(f"sizes: {blocks}: a cache holds at least one block")
    return f"{blocks}b"


def policies_of(policies: Policies) -> dict[str, Factory | None]:
    """Policies by name, each once; with those that are written in Python, what makes them."""
    if isinstance(policies, str):
        policies = policies.split(",")
    elif callable(policies):
        policies = [policies]
    known: dict[str, Factory | None] = {}
    for policy in policies:
        if isinstance(policy, str):
            name, factory = policy, None
        elif callable(policy):
            name, factory = name_of(policy), policy
        else:
            expected = "expected a name such as 'lirs', see nigh.policies(), or a class derived from nigh.Policy"
            raise TypeError(f"policies: {policy!r}: {expected}")
        if known.setdefault(name, factory) is not factory:
            raise ValueError(f"policies: two are named {name!r}: give one an attribute `name`")
    if not known:
        raise ValueError("policies: there are none")
    return known


def names_of(policies: Policies) -> list[str]:
    """The names of registered policies, each once."""
    known = policies_of(policies)
    for name, factory in known.items():
        if factory is not None:
            raise TypeError(f"policies: {name}: policies written in Python run in nigh.sim() only")
    return list(known)


def warmup_of(warmup: str | int) -> str:
    """A warm-up as text."""
    return warmup if isinstance(warmup, str) else str(int(warmup))


def threads_of(threads: int | None) -> int:
    """The threads that replay: one a processor unless a number is given."""
    return len(os.sched_getaffinity(0)) if threads is None else count_of("threads", threads)


def limit_of(limit: int | None) -> int | None:
    """The most requests that are read."""
    return None if limit is None else count_of("limit", limit)


def count_of(name: str, value: int, least: int = 1) -> int:
    """A number from ``least`` on."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}={value!r}: expected a number")
    count = value.__index__()
    if not least <= count < 2**64:
        raise ValueError(f"{name}={count}: expected at least {least}" + (" and below 2**64" if count > 0 else ""))
    return count


def block_size_of(size: str | int | None) -> int | None:
    """Bytes in a block; text has a unit, such as ``64K``."""
    if size is None:
        return None
    count = _nigh.parse_bytes(size) if isinstance(size, str) else count_of("block_size", size)
    if count is None or count > 2**30:
        raise ValueError(f"block_size={size!r}: expected a power of two up to 1 GiB, such as 4096 or '64K'")
    return count


def human_bytes(count: float) -> str:
    """``count`` in the largest unit that leaves at least 1, such as ``64 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} PiB"
