"""Policies written in Python: replay, the contract suite, and the errors of broken ones."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nigh
from conftest import interrupt


class Lru(nigh.Policy):
    """Least recently used."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.order: OrderedDict[int, None] = OrderedDict()

    def hit(self, block: int, access: nigh.Access) -> None:
        self.order.move_to_end(block)

    def insert(self, block: int, access: nigh.Access) -> None:
        self.order[block] = None

    def evict(self, incoming: int, access: nigh.Access) -> int | None:
        return self.order.popitem(last=False)[0]

    def shed(self) -> int:
        return self.order.popitem(last=False)[0]

    def resize(self, capacity: int) -> None:
        self.capacity = capacity

    def remove(self, block: int) -> None:
        self.order.pop(block, None)


class Fifo(Lru):
    """First in, first out."""

    def hit(self, block: int, access: nigh.Access) -> None:
        pass


class Admission(Lru):
    """LRU that keeps only blocks that were referenced before; it remembers evicted and rejected ones."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.seen: set[int] = set()

    def evict(self, incoming: int, access: nigh.Access) -> int | None:
        if incoming not in self.seen:
            self.seen.add(incoming)
            return None
        return self.shed()


@pytest.fixture(scope="module")
def trace() -> nigh.Trace:
    return nigh.generate("zipf:blocks=500", requests=20_000, writes=0.2)


def rows(result: nigh.Result, policy: str) -> list[dict[str, object]]:
    return [{**row, "policy": None} for row in result.to_arrow().to_pylist() if row["policy"] == policy]


@pytest.mark.parametrize("replayed", [{}, {"sample": 0.5}, {"warmup": "20%"}, {"collapse": True, "ops": "reads"}])
def test_rows_are_those_of_native_policies(trace: nigh.Trace, replayed: dict[str, object]) -> None:
    sizes = ["1b", "7b", "10%", "50%", "1000b"]
    result = nigh.sim(trace, ["lru", Lru, "arc", Fifo, "fifo"], sizes, **replayed)  # type: ignore[arg-type]
    names = [row["policy"] for row in result.to_arrow().to_pylist()]
    assert names == [name for name in ["lru", "Lru", "arc", "Fifo", "fifo"] for _ in sizes]
    for native, own in [("lru", "Lru"), ("fifo", "Fifo")]:
        expected = [{**row, "ghosts": None} for row in rows(result, native)]
        assert rows(result, own) == expected
    alone = nigh.sim(trace, Lru, sizes, **replayed)  # type: ignore[arg-type]
    assert rows(alone, "Lru") == rows(result, "Lru")
    assert alone.cpu_s is not None and alone.cpu_s > 0


@settings(deadline=None)
@given(blocks=st.lists(st.integers(0, 2**40), min_size=1, max_size=300), size=st.integers(1, 40))
def test_rows_on_any_references(blocks: list[int], size: int) -> None:
    result = nigh.sim({"offset": [4096 * (block % 60) for block in blocks]}, ["lru", Lru, "fifo", Fifo], size)
    hits = result.to_arrow()["hits"].to_pylist()
    assert hits[0] == hits[1] and hits[2] == hits[3]


def test_contract_suite() -> None:
    for policy in [Lru, Fifo, Admission]:
        nigh.check_policy(policy)


def test_partial_suite() -> None:
    class Least(nigh.Policy):
        def __init__(self, capacity: int) -> None:
            self.blocks: set[int] = set()

        def insert(self, block: int, access: nigh.Access) -> None:
            self.blocks.add(block)

        def evict(self, incoming: int, access: nigh.Access) -> int | None:
            victim = min(self.blocks)
            self.blocks.remove(victim)
            return victim

    nigh.check_policy(Least, sizes=False, removals=False)
    with pytest.raises(nigh.PolicyError, match=r"removals.*remove\(\) at reference 0 raised NotImplementedError"):
        nigh.check_policy(Least, sizes=False)
    with pytest.raises(nigh.PolicyError, match=r"shed\(\)"):
        nigh.check_policy(Least, removals=False)


def test_abstract_methods_are_named() -> None:
    class Nothing(nigh.Policy):
        pass

    with pytest.raises(nigh.PolicyError, match=r"Nothing\(1\) raised TypeError.*abstract.*evict") as error:
        nigh.check_policy(Nothing)
    assert isinstance(error.value.__cause__, TypeError)


def broken(of: str, value: object) -> type[Lru]:
    """An LRU whose method returns or raises this from the tenth call on."""

    class Broken(Lru):
        calls = 0

    def method(self: Broken, *arguments: object) -> object:
        self.calls += 1
        if self.calls < 10:
            return getattr(Lru, of)(self, *arguments)
        if isinstance(value, Exception):
            raise value
        return value

    setattr(Broken, of, method)
    return Broken


@pytest.mark.parametrize(
    ("method", "value", "text"),
    [
        ("evict", 10**9, "block 1000000000, which is not resident"),
        ("evict", -1, "block -1, which is not resident"),
        ("evict", 2**70, f"block {2**70}, which is not resident"),
        ("evict", "5", "a str, expected a resident block, or None"),
        ("evict", 1.0, "a float, expected"),
        ("evict", ValueError("oh"), "raised ValueError: oh"),
        ("hit", KeyError(5), "raised KeyError: 5"),
        ("insert", ZeroDivisionError("no"), "raised ZeroDivisionError: no"),
    ],
)
def test_broken_policies_in_replays(trace: nigh.Trace, method: str, value: object, text: str) -> None:
    with pytest.raises(nigh.PolicyError) as error:
        nigh.sim(trace, ["lru", broken(method, value)], "20b")
    found = str(error.value)
    assert found.startswith(f"policy Broken (capacity 20): {method}() at reference ") and text in found
    assert (error.value.__cause__ is value) == isinstance(value, Exception)
    if isinstance(value, Exception):
        assert value.__traceback__ is not None
    with pytest.raises(nigh.PolicyError):
        nigh.check_policy(broken(method, value))


@pytest.mark.parametrize(
    ("method", "value", "text"),
    [
        ("shed", None, "None, expected a resident block"),
        ("shed", 39, "block 39, which is not resident"),
        ("shed", RuntimeError(), "raised RuntimeError"),
        ("remove", RuntimeError("x"), "raised RuntimeError: x"),
        ("resize", RuntimeError("x"), "raised RuntimeError: x"),
        ("check", AssertionError("lost"), "raised AssertionError: lost"),
    ],
)
def test_broken_policies_in_the_suite(method: str, value: object, text: str) -> None:
    with pytest.raises(nigh.PolicyError) as error:
        nigh.check_policy(broken(method, value))
    assert f"{method}() at reference" in str(error.value) and text in str(error.value)
    assert "seed " in str(error.value) and "the last calls were" in str(error.value)


def test_the_incoming_block_is_no_victim(trace: nigh.Trace) -> None:
    class Incoming(Lru):
        def evict(self, incoming: int, access: nigh.Access) -> int | None:
            return incoming

    with pytest.raises(nigh.PolicyError, match="which is not resident"):
        nigh.sim(trace, Incoming, "5b")


def test_shared_state_is_found() -> None:
    class Shared(nigh.Policy):
        queue: list[int] = []

        def insert(self, block: int, access: nigh.Access) -> None:
            self.queue.append(block)

        def evict(self, incoming: int, access: nigh.Access) -> int | None:
            return self.queue.pop(0)

    with pytest.raises(nigh.PolicyError, match="not resident"):
        nigh.check_policy(Shared, sizes=False, removals=False)


def test_a_removed_block_does_not_leave_again() -> None:
    class Forgetful(Lru):
        def remove(self, block: int) -> None:
            pass

    with pytest.raises(nigh.PolicyError, match="removals.*which is not resident"):
        nigh.check_policy(Forgetful)


def test_accesses(trace: nigh.Trace) -> None:
    seen: list[nigh.Access] = []

    class Recorder(Lru):
        def hit(self, block: int, access: nigh.Access) -> None:
            super().hit(block, access)
            seen.append(access)

        def insert(self, block: int, access: nigh.Access) -> None:
            super().insert(block, access)
            seen.append(access)

    table = {"offset": [0, 8192, 0, 4096], "volume": [0, 3, 0, 3], "stream": [7, 8, 9, 0], "tenant": [0, 0, 0, 5]}
    nigh.sim(table, Recorder, "100%")
    assert [access.tick for access in seen] == [0, 1, 2, 3]
    assert [(access.volume, access.index) for access in seen] == [(0, 0), (3, 2), (0, 0), (3, 1)]
    assert [access.stream for access in seen] == [7, 8, 9, 5]
    assert repr(nigh.Access(3, index=4)) == "Access(tick=3, volume=0, index=4, stream=0)"


def test_names(trace: nigh.Trace) -> None:
    class Named(Lru):
        name = "my-lru"

    def make(capacity: int, extra: int = 0) -> nigh.Policy:
        return Lru(capacity)

    policies = [Named, make, functools.partial(make, extra=3), functools.partial(make, extra=4)]
    names = [row["policy"] for row in nigh.sim(trace, policies, "5%").to_arrow().to_pylist()]  # type: ignore[arg-type]
    assert names == ["my-lru", "make", "make(extra=3)", "make(extra=4)"]
    with pytest.raises(ValueError, match="two are named 'Lru'"):
        nigh.sim(trace, [Lru, type("Lru", (Lru,), {})], "5%")
    with pytest.raises(TypeError, match="policies: 5: expected a name"):
        nigh.sim(trace, [5], "5%")  # type: ignore[list-item]
    with pytest.raises(nigh.PolicyError, match="returned a list, expected a nigh.Policy"):
        nigh.sim(trace, [lambda capacity: []], "5%")  # type: ignore[list-item, return-value]
    with pytest.raises(TypeError, match="expected a class derived"):
        nigh.check_policy("lru")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seeds=0"):
        nigh.check_policy(Lru, seeds=0)


def test_curves_and_internals(trace: nigh.Trace) -> None:
    class Measured(Lru):
        def gauges(self) -> dict[str, int]:
            return {"blocks": len(self.order), "room": self.capacity - len(self.order)}

    result = nigh.sim(trace, [Measured, "arc"], ["10b", "100b"], internals=("100b", 20))
    assert result.internals is not None
    points = [row for row in result.internals.to_pylist() if row["policy"] == "Measured"]
    assert len(points) == 40 and {row["size_blocks"] for row in points} == {100}
    assert points[-1]["quantity"] == "room" and points[-1]["value"] == 0 and points[-1]["references"] == 20_000
    assert any(row["policy"] == "arc" for row in result.internals.to_pylist())
    curves = [trace.mrc(policy, "1%..50%").to_arrow()["hits"] for policy in (Lru, "lru")]
    assert curves[0].to_pylist() == curves[1].to_pylist()

    class Changing(Lru):
        def gauges(self) -> dict[str, int]:
            return {f"at {len(self.order) % 7}": 1}

    with pytest.raises(nigh.PolicyError, match="gauges.*the same names each time"):
        nigh.sim(trace, Changing, "100b", internals=("100b", 20_000))


def test_control_c_ends_a_replay() -> None:
    script = """
import nigh

class Endless(nigh.Policy):
    def __init__(self, capacity):
        self.order = []

    def hit(self, block, access):
        for _ in range(1000):
            self.order[0]

    def insert(self, block, access):
        self.order.append(block)

    def evict(self, incoming, access):
        return self.order.pop(0)

endless = nigh.generate("zipf:blocks=500", requests=1_000_000)
print(endless, flush=True)
nigh.sim(endless, Endless, "50%")
"""
    errors, seconds = interrupt(script)
    assert errors.rstrip().endswith("KeyboardInterrupt") and seconds < 5, (errors, seconds)


def test_progress(trace: nigh.Trace) -> None:
    class Slow(Lru):
        def hit(self, block: int, access: nigh.Access) -> None:
            if access.tick % 1000 == 0:
                threading.Event().wait(0.02)

    references = trace._load()
    reports: list[int] = []
    references.replay_policy(Slow, "Slow", ["5b", "500b"], warmup="0", internals=None, progress=reports.append)
    assert reports == sorted(reports) and reports and reports[-1] <= 40_000

    def stop(done: int) -> None:
        raise OSError("enough")

    with pytest.raises(OSError, match="enough"):
        references.replay_policy(Slow, "Slow", ["500b"], warmup="0", internals=None, progress=stop)


def test_a_policy_may_replay(trace: nigh.Trace) -> None:
    class Nested(Lru):
        def __init__(self, capacity: int) -> None:
            super().__init__(capacity)
            self.best = nigh.sim(trace, [Lru, "lru"], "5b").to_arrow()["hits"].to_pylist()

    assert len(nigh.sim(trace, Nested, "5b")) == 1
