"""Caches for programs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast, overload

from ._nigh import CacheBase

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")
R = TypeVar("R", covariant=True)

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

    class Cached(Protocol[P, R]):
        """A function whose results are kept."""

        cache: Cache[Any, Any]

        def __call__(self, *arguments: P.args, **named: P.kwargs) -> R: ...

_MISSING: Any = object()


class Stats(NamedTuple):
    """Counts of a cache since it was made."""

    #: Look-ups by ``get`` or ``[]``, or by what calls ``get``, that found the key.
    hits: int
    #: Look-ups that did not.
    misses: int
    #: Keys that left to make room.
    evictions: int

    @property
    def hit_ratio(self) -> float:
        """Hits of all look-ups, 0 to 1; 0 if there were none."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else 0.0


class Cache(CacheBase, MutableMapping[K, V]):
    """A mapping of at most ``capacity`` keys; ``policy`` decides which key leaves when another one comes.

    >>> cache = nigh.Cache(2, "lru")
    >>> cache["a"], cache["b"] = 1, 2
    >>> cache.get("a")
    1
    >>> cache["c"] = 3  # b was used longest ago
    >>> sorted(cache)
    ['a', 'c']
    >>> cache.stats()
    Stats(hits=1, misses=0, evictions=1)

    ``policy`` is the name of any policy, with parameters, such as ``"lirs"`` or ``"s3-fifo"``; see :func:`nigh.policies`.
    A replay of the same references by :func:`nigh.sim` has the same hits. W-TinyLFU counts references by a key's hash: its hits
    are those of a replay only where keys are the numbers of blocks. It also takes memory for its counters at once, 8 to 16
    bytes for each key of ``capacity``; other policies take memory as keys come. Policies that need the future (opt) or look at
    places on disk or in files (dulo, aoio, ubm, pcc) raise ``ValueError``. LIRS, 2Q, ARC, CLOCK-Pro, S3-FIFO and others
    remember evicted keys: from half (2Q) to four times (MQ) as many as the cache holds. The cache remembers them by their hashes;
    the keys and values themselves are released.

    ``get`` and ``[]`` are references: hits change the order in which keys leave. So are the look-ups of ``setdefault``,
    ``get_or_compute`` and :func:`nigh.cached`, and setting a key that is in the cache, which counts as no hit. ``in``,
    ``peek``, ``len``, iteration, ``items``, ``values``, ``pop`` and ``del`` are not. Iteration is over the keys of the
    moment in which it starts, in no order.

    ``weigh`` makes it a cache of limited weight: it is called with each value that is set, as cachetools' ``getsizeof`` is, and returns a
    whole number, of which 0 counts as 1. ``capacity`` is then the most that the weights of all values sum up to, and ``weight`` is
    their sum. A value heavier than ``capacity`` is not kept; a value that its key had before leaves nevertheless. Nor is a value
    always kept that the policy considers the least useful.

    >>> cache = nigh.Cache(1000, "s3-fifo", weigh=len)
    >>> cache["page"] = bytes(600)
    >>> cache["other"] = bytes(300)
    >>> cache["large"] = bytes(2000)
    >>> sorted(cache), cache.weight
    (['other', 'page'], 900)

    ``on_evict`` is called with each key and value that leave to make room, after the change; what it raises is raised by
    the method that made the change.

    Threads may share a cache. Each method is atomic, except ``setdefault`` and ``get_or_compute``, which look up and then set,
    so two threads may compute the same missing value, and ``update``, which sets key by key.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            capacity: int,
            policy: str = "lirs",
            *,
            on_evict: Callable[[K, V], object] | None = None,
            weigh: Callable[[V], int] | None = None,
        ) -> None: ...

        @overload
        def get(self, key: K, /) -> V | None: ...
        @overload
        def get(self, key: K, /, default: V) -> V: ...
        @overload
        def get(self, key: K, /, default: D) -> V | D: ...
        def get(self, key: K, /, default: Any = None) -> Any:
            """The value of ``key``, or ``default``. A reference: it counts as a hit or a miss."""

        def peek(self, key: K, /, default: D | None = None) -> V | D | None:
            """The value of ``key``, or ``default``; not a reference."""

        @property
        def capacity(self) -> int:
            """The most keys, or the most that the weights sum up to. If it is set to less than that, keys are evicted."""

        @capacity.setter
        def capacity(self, capacity: int) -> None: ...
        @property
        def weight(self) -> int:
            """The sum of the weights of all values: their number without ``weigh``."""

        @property
        def policy(self) -> str:
            """The policy with its parameters."""

        def __getitem__(self, key: K, /) -> V: ...
        def __setitem__(self, key: K, value: V, /) -> None: ...
        def __delitem__(self, key: K, /) -> None: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[K]: ...

    def items(self) -> list[tuple[K, V]]:  # type: ignore[override]
        """The keys and values of this moment, in no order; not references."""
        return self._items()

    def values(self) -> list[V]:  # type: ignore[override]
        """The values of this moment, in no order; not references."""
        return [value for _, value in self._items()]

    def setdefault(self, key: K, default: V = None, /) -> V:  # type: ignore[assignment]
        """The value of ``key``; if it is not in the cache, ``default`` becomes its value."""
        return self.get_or_compute(key, lambda: default)

    def get_or_compute(self, key: K, compute: Callable[[], V]) -> V:
        """The value of ``key``; if it is not in the cache, what ``compute()`` returns becomes its value."""
        value: V = self.get(key, _MISSING)
        if value is _MISSING:
            value = compute()
            self[key] = value
        return value

    def stats(self) -> Stats:
        """Hits, misses and evictions since the cache was made."""
        return Stats(*self._counts())

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        if self._weighs():
            return f"<nigh.Cache: {len(self)} keys, {self.weight} of {self.capacity}, {self.policy}>"
        return f"<nigh.Cache: {len(self)} of {self.capacity} keys, {self.policy}>"


#: Marks in a key where the arguments by name begin.
_NAMED: Any = object()


def cached(
    capacity: int = 128, policy: str = "lirs", *, typed: bool = False
) -> Callable[[Callable[P, R]], Cached[P, R]]:
    """A decorator that keeps the results of a function's last calls, as ``functools.lru_cache`` does, under any policy.

    >>> @nigh.cached(1000)
    ... def square(x: int) -> int:
    ...     return x * x
    >>> square(3)
    9
    >>> square.cache.stats()
    Stats(hits=0, misses=1, evictions=0)

    Arguments must be hashable. ``typed`` keeps the results of ``f(1)`` and ``f(1.0)`` apart. The attribute ``cache`` of the
    function is its :class:`Cache`; exceptions are not kept.
    """
    if callable(capacity):
        raise TypeError("nigh.cached takes the capacity: write @nigh.cached(1000)")

    def decorate(function: Callable[P, R]) -> Cached[P, R]:
        cache: Cache[Any, Any] = Cache(capacity, policy)
        get = cache.get

        @functools.wraps(function)
        def wrapper(*arguments: P.args, **named: P.kwargs) -> R:
            key = _key(arguments, named, typed)
            value: R = get(key, _MISSING)
            if value is _MISSING:
                value = cache[key] = function(*arguments, **named)
            return value

        wrapper.cache = cache  # type: ignore[attr-defined]
        return cast("Cached[P, R]", wrapper)

    return decorate


def _key(arguments: tuple[Any, ...], named: dict[str, Any], typed: bool) -> Any:
    """The arguments of a call as a key; one string or whole number alone is its own."""
    if not named and not typed:
        return arguments[0] if len(arguments) == 1 and type(arguments[0]) in (int, str) else arguments
    key = arguments
    if named:
        key += (_NAMED, *(part for item in named.items() for part in item))
    if typed:
        key += tuple(type(argument) for argument in (*arguments, *named.values()))
    return key
