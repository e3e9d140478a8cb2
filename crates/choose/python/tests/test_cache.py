"""nigh.Cache: a mapping, hits as in a replay, and keys and values that run code of their own."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nigh

ONLINE = [policy["name"] for policy in nigh.policies().to_pylist() if not policy["offline"] and not policy["spatial"]]


@pytest.mark.parametrize("policy", ONLINE)
@pytest.mark.parametrize("capacity", [1, 7, 60, 400])
def test_hits_are_those_of_a_replay(policy: str, capacity: int) -> None:
    trace = nigh.generate("zipf:blocks=500", requests=20_000)
    blocks = [offset // 4096 for offset in trace.to_arrow()["offset"].to_pylist()]
    cache: nigh.Cache[int, int] = nigh.Cache(capacity, policy)
    for block in blocks:
        found = cache.get(block)
        assert found in (None, block)
        if found is None:
            cache[block] = block
    (row,) = nigh.sim(trace, [policy], f"{capacity}b").to_arrow().to_pylist()
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.evictions) == (row["hits"], row["misses"], row["evictions"])
    assert stats.hit_ratio == pytest.approx(row["hit_ratio"])
    assert len(cache) == min(capacity, len(set(blocks)))


class Naive:
    """LRU or FIFO, obviously."""

    def __init__(self, capacity: int, lru: bool) -> None:
        self.capacity, self.lru = capacity, lru
        self.order: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any) -> Any:
        if self.lru and key in self.order:
            self.order.move_to_end(key)
        return self.order.get(key)

    def set(self, key: Any, value: Any) -> None:
        if key not in self.order:
            self.shrink(self.capacity - 1)
        elif self.lru:
            self.order.move_to_end(key)
        self.order[key] = value

    def shrink(self, most: int) -> None:
        while len(self.order) > most:
            self.order.popitem(last=False)


KEYS = st.one_of(
    st.integers(0, 12),
    st.sampled_from(["a", "b", "c"]),
    st.tuples(st.integers(0, 2), st.sampled_from(["x", "y"])),
    st.sampled_from([0.0, 1.0, True, None, b"a", (1, (2, 3)), frozenset([1])]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("get"), KEYS),
        st.tuples(st.just("set"), KEYS),
        st.tuples(st.just("del"), KEYS),
        st.tuples(st.just("pop"), KEYS),
        st.tuples(st.just("in"), KEYS),
        st.tuples(st.just("capacity"), st.integers(1, 12)),
        st.tuples(st.just("popitem"), st.none()),
        st.tuples(st.just("clear"), st.just(None)),
    ),
    max_size=80,
)


@settings(deadline=None, max_examples=200)
@given(steps=STEPS, capacity=st.integers(1, 8), lru=st.booleans())
def test_against_a_naive_model(steps: list[tuple[str, Any]], capacity: int, lru: bool) -> None:
    model, cache = Naive(capacity, lru), nigh.Cache[Any, Any](capacity, "lru" if lru else "fifo")
    for at, (step, key) in enumerate(steps):
        if step == "get":
            assert cache.get(key) == model.get(key)
        elif step == "set":
            cache[key] = at
            model.set(key, at)
        elif step == "del":
            if key in model.order:
                del cache[key]
                del model.order[key]
            else:
                with pytest.raises(KeyError):
                    del cache[key]
        elif step == "pop":
            assert cache.pop(key, "no") == model.order.pop(key, "no")
        elif step == "in":
            assert (key in cache) == (key in model.order)
        elif step == "capacity":
            cache.capacity = model.capacity = key
            model.shrink(key)
        elif step == "clear":
            cache.clear()
            model.order.clear()
        elif model.order:
            assert cache.popitem() == model.order.popitem(last=False)
        else:
            with pytest.raises(KeyError):
                cache.popitem()
        assert len(cache) == len(model.order) and dict(cache.items()) == dict(model.order)


@settings(deadline=None, max_examples=60)
@given(steps=STEPS, capacity=st.integers(1, 8), policy=st.sampled_from(ONLINE))
def test_any_policy_is_a_mapping(steps: list[tuple[str, Any]], capacity: int, policy: str) -> None:
    """The cache has the values that were set last, and no more than fit."""
    last: dict[Any, Any] = {}
    evicted: list[Any] = []
    cache: nigh.Cache[Any, Any] = nigh.Cache(capacity, policy, on_evict=lambda key, value: evicted.append(key))
    for at, (step, key) in enumerate(steps):
        before = dict(cache.items())
        evicted.clear()
        if step == "set":
            cache[key] = last[key] = at
        elif step == "get":
            assert (cache.get(key) is not None) == (key in before)
        elif step in ("del", "pop"):
            assert cache.pop(key, None) == before.get(key)
        elif step == "capacity":
            cache.capacity = key
        elif step == "clear":
            cache.clear()
        elif step == "popitem" and before:
            cache.popitem()
        after = dict(cache.items())
        assert len(cache) == len(after) <= cache.capacity
        assert all(last[key] == value for key, value in after.items())
        assert not set(evicted) & set(after)
        if step in ("set", "capacity"):
            assert set(before) - set(after) == set(evicted)


def test_mapping() -> None:
    cache: nigh.Cache[str, int] = nigh.Cache(3, "lru")
    assert isinstance(cache, MutableMapping) and not cache and cache.policy == "lru" and cache.capacity == 3
    cache.update({"a": 1, "b": 2})
    assert cache["a"] == 1 and cache.get("x") is None and cache.get("x", 5) == cache.get("x", default=5) == 5 and cache.peek("b") == 2
    assert sorted(cache) == sorted(cache.keys()) == ["a", "b"] and sorted(cache.values()) == [1, 2]
    assert cache.setdefault("a", 9) == 1 and cache.setdefault("c", 3) == 3
    assert cache.get_or_compute("c", lambda: 1 // 0) == 3
    with pytest.raises(ZeroDivisionError):
        cache.get_or_compute("d", lambda: 1 // 0)
    with pytest.raises(KeyError, match="nothing"):
        cache["nothing"]
    with pytest.raises(KeyError, match="nothing"):
        cache.pop("nothing")
    with pytest.raises(TypeError, match="unhashable"):
        cache.get([])  # type: ignore[call-overload]
    cache.clear()
    assert len(cache) == 0 and cache.stats().hits > 0
    assert cache != {} and cache == cache and repr(cache) == "<nigh.Cache: 0 of 3 keys, lru>"


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ((0,), ValueError, "capacity=0: expected 1 to"),
        ((-3,), ValueError, "capacity=-3"),
        ((2**32,), ValueError, "capacity=4294967296"),
        ((2**32 - 1, "lirs"), ValueError, "capacity=4294967295: policy 'lirs' is limited to"),
        ((1.5,), TypeError, "capacity: a float"),
        ((True,), TypeError, "capacity: a bool"),
        ((5, "lur"), ValueError, "unknown policy 'lur'.*'lru'"),
        ((5, "opt"), ValueError, "needs to know the future"),
        ((5, "dulo"), ValueError, "neighbours on disk"),
        ((5, "lirs:ghosts=unlimited"), ValueError, "ghosts=2"),
        ((5, "lirs:hir=900%"), ValueError, "hir=900%"),
        ((5, nigh.Policy), TypeError, "policy: expected a name"),
        ((5, "auto:candidates=lirs+dulo"), ValueError, "neighbours on disk"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        nigh.Cache(*arguments)


def test_on_evict_is_a_function() -> None:
    with pytest.raises(TypeError, match="on_evict: a int"):
        nigh.Cache(5, on_evict=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", sorted(set(ONLINE) - {"w-tinylfu"}))
def test_large_capacities_take_no_memory(policy: str) -> None:
    """Nor do they reserve any. The counters of W-TinyLFU do."""
    before = memory_bytes(RESERVED)
    cache: nigh.Cache[int, int] = nigh.Cache(3_000_000, policy)
    cache[1] = 2
    assert cache[1] == 2 and memory_bytes(RESERVED) - before < 4 * 2**20


def test_sizes_change() -> None:
    for policy in ONLINE:
        cache: nigh.Cache[int, int] = nigh.Cache(10, policy)
        for capacity in [10, 100, 3, 1, 50]:
            cache.capacity = capacity
            assert cache.capacity == capacity >= len(cache)
            for key in range(300):
                if cache.get(key % 77) is None:
                    cache[key % 77] = key
            assert len(cache) == min(capacity, 77)
        with pytest.raises(ValueError, match="capacity=0"):
            cache.capacity = 0
        assert cache.capacity == 50


def test_evictions_are_reported() -> None:
    evicted: list[tuple[int, int]] = []
    cache: nigh.Cache[int, int] = nigh.Cache(2, "fifo", on_evict=lambda key, value: evicted.append((key, value)))
    for key in range(4):
        cache[key] = -key
    assert evicted == [(0, 0), (1, -1)]
    del cache[2]
    cache.capacity = 1
    assert cache.popitem() == (3, -3) and len(evicted) == 2

    def refuse(key: int, value: int) -> None:
        raise RuntimeError(key)

    cache = nigh.Cache(1, "lru", on_evict=refuse)
    cache[1] = 1
    with pytest.raises(RuntimeError):
        cache[2] = 2
    assert cache.items() == [(2, 2)] and cache.stats().evictions == 1

    recursive: nigh.Cache[int, int] = nigh.Cache(2, "lru", on_evict=lambda key, value: other.__setitem__(key, value))
    other: nigh.Cache[int, int] = nigh.Cache(2, "lru", on_evict=lambda key, value: recursive.pop(key, None))
    for key in range(50):
        recursive[key] = key
    assert sorted(recursive) == [48, 49] and sorted(other) == [46, 47]


@settings(deadline=None, max_examples=100)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["set", "set", "get", "pop", "capacity"]), st.integers(0, 20), st.integers(0, 25)),
        max_size=80,
    ),
    policy=st.sampled_from(ONLINE),
)
def test_weights(steps: list[tuple[str, int, int]], policy: str) -> None:
    """The sum of weights fits, and what left was reported or not kept."""
    last: dict[int, str] = {}
    evicted: dict[int, str] = {}
    cache: nigh.Cache[int, str] = nigh.Cache(40, policy, weigh=len, on_evict=evicted.__setitem__)
    for step, key, number in steps:
        before = dict(cache.items())
        evicted.clear()
        if step == "set":
            cache[key] = last[key] = "x" * number
            assert number <= cache.capacity or key not in cache
        elif step == "get":
            assert cache.get(key) == before.get(key)
        elif step == "pop":
            assert cache.pop(key, None) == before.get(key)
        else:
            cache.capacity = number + 1
        after = dict(cache.items())
        assert cache.weight == sum(max(1, len(value)) for value in after.values()) <= cache.capacity
        assert all(last[key] == value for key, value in after.items())
        if step in ("set", "capacity"):
            gone = {other: value for other, value in before.items() if other not in after and other != key}
            assert gone == {other: value for other, value in evicted.items() if other != key}


def test_weights_of_one_are_numbers_of_keys() -> None:
    for policy in ["lru", "lirs", "s3-fifo", "arc"]:
        caches = [nigh.Cache[int, int](50, policy), nigh.Cache[int, int](50, policy, weigh=lambda value: 1)]
        for step in range(5_000):
            for cache in caches:
                key = (step * step + step // 7) % 171
                if cache.get(key) is None:
                    cache[key] = step
        assert caches[0].weight == caches[1].weight == 50
        # With weights, a policy's capacity grows while the cache fills: LIRS begins with other LIR blocks.
        hits, weighed = (cache.stats().hits for cache in caches)
        assert abs(weighed - hits) <= (hits // 100 if policy == "lirs" else 0)


def test_weighing() -> None:
    cache: nigh.Cache[str, bytes] = nigh.Cache(2**40, "lru", weigh=len)
    cache["large"] = bytes(10_000)
    assert cache.weight == 10_000 and cache.capacity == 2**40
    cache.capacity = 100
    assert len(cache) == 0 and cache.stats().evictions == 1
    cache["a"], cache["b"] = bytes(60), bytes(40)
    cache["a"] = bytes(61)
    assert cache.keys() == {"a"} and repr(cache) == "<nigh.Cache: 1 keys, 61 of 100, lru>"
    cache["a"] = bytes(101)
    assert "a" not in cache and cache.weight == 0
    with pytest.raises(TypeError, match="weigh: a int, expected a function"):
        nigh.Cache(5, weigh=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="capacity=0"):
        nigh.Cache(0, weigh=len)

    def weigh(value: Any) -> Any:
        if value is None:
            raise KeyError("none")
        mine.clear()
        return value

    mine: nigh.Cache[str, Any] = nigh.Cache(10, weigh=weigh)
    mine["a"] = 5
    for value, kind in [(-1, ValueError), (2**64, ValueError), (1.5, TypeError), ("x", TypeError), (None, KeyError)]:
        mine.setdefault("a", 5)
        with pytest.raises(kind, match="none" if value is None else "weigh"):
            mine["b"] = value
        assert "b" not in mine
    gone = weakref.ref(mine)
    del mine
    gc.collect()
    assert gone() is None


class Key:
    """A key with a hash that many share; ``on_eq`` runs when it is compared."""

    on_eq: Callable[[Key, object], None] = staticmethod(lambda own, other: None)

    def __init__(self, name: int) -> None:
        self.name = name

    def __hash__(self) -> int:
        return self.name % 2

    def __eq__(self, other: object) -> bool:
        type(self).on_eq(self, other)
        return isinstance(other, Key) and self.name == other.name


def test_bytes_and_texts_with_the_same_hash() -> None:
    """``python -b`` warns where they are compared, which runs Python code."""
    program = """if True:
        import sys, warnings, nigh
        ran = []
        warnings.simplefilter("always")
        warnings.showwarning = lambda *arguments, **named: ran.append(len(cache))
        for policy in ["lru", "lirs"]:
            cache = nigh.Cache(9, policy)
            keys = ["a", b"a", ("a", 1), (b"a", 1), "b", b"b"]
            assert hash("a") == hash(b"a")
            for key in keys:
                cache[key] = key
            for key in keys:
                found = cache[key]
                assert type(found) is type(key) and repr(found) == repr(key)
            assert len(cache) == len(keys)
        assert bool(ran) == bool(sys.flags.bytes_warning)
    """
    for flags in ([], ["-b"]):
        done = subprocess.run([sys.executable, *flags, "-c", program], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_keys_with_code_of_their_own() -> None:
    for policy in ONLINE:
        cache: nigh.Cache[Any, int] = nigh.Cache(8, policy)
        for step in range(400):
            name = step * step % 23
            if cache.get(Key(name)) is None:
                cache[Key(name)] = name
            assert cache[Key(name)] == name and Key(name) in cache and Key(-1) not in cache
        assert len(cache) == 8 and cache.pop(Key(name)) == name and Key(name) not in cache


def test_comparisons_may_raise() -> None:
    class Raising(Key):
        pass

    cache: nigh.Cache[Any, int] = nigh.Cache(4, "lirs")
    for name in range(4):
        cache[Raising(name)] = name
    before = [(id(key), value) for key, value in cache.items()]

    def refuse(own: Key, other: object) -> None:
        raise RuntimeError("no")

    Raising.on_eq = staticmethod(refuse)
    actions: list[Callable[[], object]] = [
        lambda: cache.get(Raising(1)),
        lambda: cache[Raising(1)],
        lambda: cache.__setitem__(Raising(9), 1),
        lambda: cache.__delitem__(Raising(1)),
        lambda: cache.pop(Raising(1), None),
        lambda: Raising(1) in cache,
    ]
    for action in actions:
        with pytest.raises(RuntimeError, match="no"):
            action()
        assert [(id(key), value) for key, value in cache.items()] == before
    Raising.on_eq = staticmethod(lambda own, other: None)
    assert cache[Raising(1)] == 1


@pytest.mark.parametrize("policy", ["lru", "lirs", "arc", "s3-fifo", "clock-pro"])
def test_comparisons_may_change_the_cache(policy: str) -> None:
    class Changing(Key):
        pass

    cache: nigh.Cache[Any, Any] = nigh.Cache(5, policy)
    calls = 0

    def change(own: Key, other: object) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            cache.pop(other, None) if calls % 2 else cache.clear()
        elif calls % 7 == 0:
            cache.capacity = 1 + calls % 9
        else:
            cache[calls % 11] = calls

    for step in range(300):
        name = step % 13
        Changing.on_eq = staticmethod(change if step % 2 else lambda own, other: None)
        if cache.get(Changing(name)) is None:
            cache[Changing(name)] = name
        assert len(cache) == len(cache.items()) <= cache.capacity
    assert calls > 0


def test_finalizers_may_use_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: raised.append(what.exc_value))
    finalized = 0

    class Value:
        def __del__(self) -> None:
            nonlocal finalized
            finalized += 1
            cache["finalized"] = cache.get("finalized", 0) + 1
            cache.pop("other", None)

    cache: nigh.Cache[Any, Any] = nigh.Cache(3, "lru")
    for key in range(50):
        cache[key] = Value()
        cache[key] = Value()
        cache.pop(key - 1, None)
    cache.clear()
    cache.capacity = 1
    gc.collect()
    assert len(cache) <= 1 and finalized == 100 and not raised


def test_hash_may_raise_or_change_the_cache() -> None:
    class Hash:
        def __hash__(self) -> int:
            cache.clear()
            return 1

    cache: nigh.Cache[Any, int] = nigh.Cache(3, "lru")
    key = Hash()
    cache[key] = 1
    cache["a"] = 2
    assert cache.get(key) is None and len(cache) == 0

    class NoHash:
        def __hash__(self) -> int:
            raise RuntimeError("no hash")

    with pytest.raises(RuntimeError, match="no hash"):
        cache[NoHash()] = 1


def test_deep_tuples() -> None:
    def nested(depth: int) -> tuple[Any, ...]:
        return (nested(depth - 1), depth) if depth else ()

    cache: nigh.Cache[Any, int] = nigh.Cache(3)
    cache[nested(50)] = 1
    assert cache[nested(50)] == 1 and nested(49) not in cache
    # NaN is a key by identity, as in a dict.
    nan = float("nan")
    cache[nan] = 2
    assert cache[nan] == 2 and float("nan") not in cache
    assert cache.setdefault(1, 5) == cache[1.0] == cache[True]


@pytest.mark.parametrize("policy", ["lru", "lirs", "s3-fifo"])
@pytest.mark.parametrize("make", [int, str, Key], ids=["int", "str", "Key"])
def test_threads(policy: str, make: Callable[[int], Any]) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    evicted = [0]
    lock = threading.Lock()

    def count(key: Any, value: int) -> None:
        with lock:
            evicted[0] += 1

    cache: nigh.Cache[Any, int] = nigh.Cache(20, policy, on_evict=count)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for step in range(2_000):
                name = (seed * 31 + step * step) % 47
                value = cache.get(make(name))
                assert value in (None, name)
                if value is None:
                    cache[make(name)] = name
                if step % 50 == 0:
                    cache.pop(make(name), None)
                    cache.capacity = 15 + step % 10
                    assert all(key in (value, str(value)) or key.name == value for key, value in cache.items())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    finally:
        sys.setswitchinterval(interval)
    assert not errors and len(cache) <= cache.capacity
    stats = cache.stats()
    assert stats.hits + stats.misses == 8_000 and stats.evictions == evicted[0]


def test_cycles_are_collected() -> None:
    class Value:
        pass

    cache: nigh.Cache[Any, Any] = nigh.Cache(3, on_evict=lambda key, value: cache)
    cache["own"] = cache
    value = Value()
    cache["value"] = value
    gone = weakref.ref(value), weakref.ref(cache)
    del cache, value
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_evicted_keys_are_released() -> None:
    class Named:
        pass

    for policy in ONLINE:
        cache: nigh.Cache[Any, int] = nigh.Cache(2, policy)
        keys = [Named() for _ in range(20)]
        known = [weakref.ref(key) for key in keys]
        for at, key in enumerate(keys):
            cache[key] = at
        del key, keys
        gc.collect()
        assert sum(reference() is not None for reference in known) == len(cache), policy


def test_references_are_released() -> None:
    key, value = ("key", object()), object()
    counts = sys.getrefcount(key), sys.getrefcount(value)
    for policy in ONLINE:
        cache: nigh.Cache[Any, Any] = nigh.Cache(2, policy)
        for step in range(50):
            cache[key] = value
            cache.get(key), cache.get(key, value), cache.peek(key), cache.items(), key in cache
            cache[step] = value
            cache[-step] = step
        cache.capacity = 1
        cache.pop(key, None)
        cache[key] = value
        cache.clear()
        cache[key] = value
    del cache
    assert (sys.getrefcount(key), sys.getrefcount(value)) == counts


#: Fields of /proc/self/statm.
RESERVED, RESIDENT = 0, 1


def memory_bytes(field: int) -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[field]) * resource.getpagesize()


def grown(work: Callable[[], object], times: int) -> int:
    """The bytes by which the process grows in the second half."""
    for _ in range(times):
        work()
    gc.collect()
    before = memory_bytes(RESIDENT)
    for _ in range(times):
        work()
    gc.collect()
    return memory_bytes(RESIDENT) - before


def test_caches_do_not_leak() -> None:
    def work() -> None:
        cache: nigh.Cache[Any, Any] = nigh.Cache(20, "lirs", on_evict=lambda key, value: cache)
        for key in range(100):
            cache[str(key)] = bytes(100)
        cache.capacity = 5

    assert grown(work, 5_000) < 2**18


def test_simulations_do_not_leak() -> None:
    class Fifo(nigh.Policy):
        def __init__(self, capacity: int) -> None:
            self.queue: list[int] = []

        def insert(self, block: int, access: nigh.Access) -> None:
            self.queue.append(block)

        def evict(self, incoming: int, access: nigh.Access) -> int | None:
            return self.queue.pop(0)

    trace = nigh.Trace({"offset": [4096 * (at * at % 37) for at in range(300)]})

    def work() -> None:
        nigh.sim(trace, ["lru", "lirs", Fifo], "5b", threads=1, progress=False)

    assert grown(work, 5_000) < 2**18


def test_cached() -> None:
    calls = []

    @nigh.cached(3, "lru")
    def add(x: float, y: float = 0) -> float:
        """Adds."""
        calls.append((x, y))
        return x + y

    assert [add(1), add(1), add(1, 2), add(1, y=2), add(y=2, x=1), add(1)] == [1, 1, 3, 3, 3, 1]
    assert calls == [(1, 0), (1, 2), (1, 2), (1, 2), (1, 0)] and add.cache.stats().hits == 1
    assert add.__doc__ == "Adds." and add.__name__ == "add"  # type: ignore[attr-defined]

    @nigh.cached(10, typed=True)
    def name(x: object) -> str:
        return type(x).__name__

    assert [name(1), name(1.0), name(True), name(1)] == ["int", "float", "bool", "int"]

    @nigh.cached(10)
    def fails() -> None:
        calls.append((0, 0))
        raise OSError

    for _ in range(2):
        with pytest.raises(OSError):
            fails()
    assert calls[-2:] == [(0, 0)] * 2
    with pytest.raises(TypeError, match="takes the capacity"):

        @nigh.cached  # type: ignore[arg-type]
        def wrong() -> None: ...
