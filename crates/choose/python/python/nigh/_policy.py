"""Policies written in Python."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from . import _nigh
from ._nigh import Access, PolicyError

__all__ = ["Access", "Factory", "Policy", "PolicyError", "check_policy", "name_of"]


class Policy(ABC):
    """A replacement policy: decides which resident block leaves. Derive from it, and pass the class to :func:`nigh.sim`.

    >>> class Fifo(nigh.Policy):
    ...     def __init__(self, capacity: int) -> None:
    ...         self.queue: dict[int, None] = {}
    ...     def insert(self, block: int, access: nigh.Access) -> None:
    ...         self.queue[block] = None
    ...     def evict(self, incoming: int, access: nigh.Access) -> int:
    ...         return self.shed()
    ...     def shed(self) -> int:
    ...         block = next(iter(self.queue))
    ...         del self.queue[block]
    ...         return block
    ...     def remove(self, block: int) -> None:
    ...         self.queue.pop(block, None)
    >>> nigh.check_policy(Fifo)
    >>> nigh.sim(trace, policies=["fifo", Fifo], sizes="10%")  # doctest: +SKIP

    The host knows which blocks are resident. For each reference it calls:

    * if the block is resident: :meth:`hit`;
    * otherwise, if the cache is full: :meth:`evict`, then :meth:`insert` unless that rejects the block;
    * otherwise: :meth:`insert`.

    A ``block`` is a number that belongs to one block of the trace for good: 0, 1, 2 and so on in the order of the first
    references, so lists can be indexed by it. Its place on disk is in ``access``. A policy may remember blocks that left
    (ghosts) in structures of its own.

    The constructor takes the capacity in blocks, at least 1. A replay at several sizes creates an object for each.
    """

    def __init__(self, capacity: int) -> None:
        """``capacity`` is the most blocks that can be resident."""

    def hit(self, block: int, access: Access) -> None:
        """``block`` is resident and was referenced. Does nothing unless overridden."""

    @abstractmethod
    def evict(self, incoming: int, access: Access) -> int | None:
        """The cache is full and ``incoming`` needs room: returns the resident block that leaves.

        ``None`` rejects ``incoming``: no block leaves, and no ``insert`` follows.
        """

    @abstractmethod
    def insert(self, block: int, access: Access) -> None:
        """``block`` is resident from now on."""

    def shed(self) -> int:
        """The cache becomes smaller: returns the resident block that leaves. Nothing is incoming.

        Replays do not need it; :func:`check_policy` does, unless it is called with ``sizes=False``.
        """
        raise NotImplementedError("needed where sizes change")

    def resize(self, capacity: int) -> None:
        """The cache has ``capacity`` blocks from now on. If more are resident, ``shed`` is called until they fit.

        Does nothing unless overridden, which suits a policy that does not use its capacity.
        """

    def remove(self, block: int) -> None:
        """``block``, which is resident, was deleted: it is not resident from now on. A policy forgets what it knows about it.

        Replays do not need it; :func:`check_policy` does, unless it is called with ``removals=False``.
        """
        raise NotImplementedError("needed where blocks are removed")

    def check(self) -> None:
        """Raises if the state is inconsistent. :func:`check_policy` calls it after each step."""

    def gauges(self) -> Mapping[str, int]:
        """Internal quantities by name, for ``Result.internals``: the same names each time; none unless overridden.

        Names stay in memory: a process can have 1,000 of them.
        """
        return {}


#: Maker of a policy for a capacity in blocks: a class derived from :class:`Policy`, or a function.
Factory = Callable[[int], Policy]


def name_of(factory: Factory) -> str:
    """The name of a policy in rows and messages.

    That is its attribute ``name`` if it has one, or else the name of the class or function. Arguments that
    ``functools.partial`` binds are added, as in ``MyPolicy(k=2)``.
    """
    name: Any = getattr(factory, "name", None)
    if isinstance(name, str):
        return name
    if isinstance(factory, functools.partial):
        bound = [repr(value) for value in factory.args]
        bound += [f"{key}={value!r}" for key, value in factory.keywords.items()]
        return f"{name_of(factory.func)}({', '.join(bound)})"
    name = getattr(factory, "__name__", type(factory).__name__)
    return str(name)


def check_policy(policy: Factory, *, seeds: int = 20, sizes: bool = True, removals: bool = True) -> None:
    """Checks a policy written in Python against the contract of :class:`Policy`, with random references.

    Its parts are those of the suite for nigh's own policies that do not depend on slots or ghosts. ``policy`` is a class or
    a function that returns an object for a capacity. For each seed, new objects get 1,000 references to 40 blocks: alone and
    with removals (``removals=False`` skips this part), at capacities from 1 to 39; with changes of size, up to capacity 80
    (``sizes=False``); and in a cache that is always as large as what it holds, which needs both.

    Raises :class:`PolicyError` for the first violation; an exception of the policy is its ``__cause__``.
    """
    if not callable(policy):
        raise TypeError(f"{policy!r}: expected a class derived from nigh.Policy, or a function that returns such an object")
    if seeds < 1:
        raise ValueError(f"seeds={seeds}: expected at least 1")
    _nigh.check_policy(policy, name_of(policy), seeds, sizes, removals)
