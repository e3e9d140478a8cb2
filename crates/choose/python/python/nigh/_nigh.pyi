"""The native half of nigh. Use what the package exports instead."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, BinaryIO, Optional, Tuple, TypedDict

import pyarrow as pa

__version__: str
#: The version of the rows of sweeps.
RESULTS: int

Progress = Optional[Callable[[int], object]]

class ReadSettings(TypedDict):
    """How a file is read."""

    format: str | None
    columns: str | None
    block_bytes: int | None
    stream: str | None
    action: str | None
    recorded_sizes: bool
    skip_bad: bool

class Source:
    @property
    def name(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def block_bytes(self) -> int: ...
    @staticmethod
    def file(path: str | PathLike[str], settings: ReadSettings) -> Source: ...
    @staticmethod
    def opener(open: Callable[[], BinaryIO], name: str, settings: ReadSettings) -> Source: ...
    @staticmethod
    def columns(stream: Any, name: str, block_bytes: int, offset_unit: str | None) -> Source: ...
    def note(self) -> str | None: ...
    @staticmethod
    def generated(
        spec: str,
        *,
        requests: int,
        block_bytes: int,
        seed: int,
        writes: float,
        gap_us: float,
        poisson: bool,
    ) -> Source: ...
    def requests(self, limit: int, progress: Progress) -> list[pa.RecordBatch]: ...
    def load(
        self, *, ops: str, collapse: bool, sample: float | None, limit: int | None, progress: Progress
    ) -> References: ...

class References:
    @property
    def notes(self) -> list[str]: ...
    def info(self) -> dict[str, int | float | None]: ...
    def replay(
        self,
        specs: Sequence[str],
        sizes: Sequence[str],
        *,
        warmup: str,
        threads: int,
        exact_lru: bool,
        internals: tuple[str, int] | None,
        progress: Progress,
    ) -> Tuple[pa.RecordBatch, pa.RecordBatch | None, pa.RecordBatch, float]: ...
    def replay_policy(
        self,
        factory: Callable[[int], Any],
        name: str,
        sizes: Sequence[str],
        *,
        warmup: str,
        internals: tuple[str, int] | None,
        progress: Progress,
    ) -> Tuple[pa.RecordBatch, pa.RecordBatch, float]: ...
    def levels(
        self,
        schemes: Sequence[str],
        levels: Sequence[str],
        *,
        costs_ms: Sequence[float] | None,
        warmup: str,
        threads: int,
        progress: Progress,
    ) -> list[tuple[str, list[int], int, list[int], int, float | None]]: ...
    def steps(self, specs: Sequence[str], sizes: Sequence[str], exact_lru: bool) -> Tuple[int, int]: ...

class Access:
    """One reference to one block.

    ``tick`` is the number of the reference, counted from 0. ``volume`` is the file or disk that contains the block, and
    ``index`` its position there, in blocks. ``stream`` is the identity of the issuing code, file or tenant, and 0 if the
    trace has none.
    """

    def __init__(self, tick: int, volume: int = 0, index: int = 0, stream: int = 0) -> None: ...
    @property
    def tick(self) -> int: ...
    @property
    def volume(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def stream(self) -> int: ...

class PolicyError(ValueError):
    """A policy written in Python broke its contract.

    The text names the policy, the method and the reference, counted from 0.
    """

def check_policy(factory: Callable[[int], Any], name: str, seeds: int, sizes: bool, removals: bool) -> None: ...

class Timed:
    def __init__(
        self,
        sources: Sequence[Source],
        device: str,
        *,
        shared: bool,
        pace: str | None,
        think: str | None,
        ops: str,
        limit: int | None,
        progress: Progress,
    ) -> None: ...
    def simulate(
        self,
        specs: Sequence[str],
        sizes: Sequence[str],
        *,
        readahead: str,
        scheduler: str,
        warmup: str,
        seed: int,
        threads: int,
        progress: Progress,
    ) -> tuple[pa.RecordBatch, list[list[tuple[str, float, float]]]]: ...
    def steps(self) -> int: ...

def policies() -> list[tuple[str, str, str, bool, bool, list[tuple[str, str, str, str]]]]: ...
def devices() -> list[tuple[str, str, int]]: ...
def sweep_list(path: str) -> tuple[list[tuple[str, str]], str, str]: ...
def is_uri(trace: str) -> bool: ...
def expand(folder: str, pattern: str) -> list[str]: ...
def jobs(traces: Sequence[tuple[str, str]]) -> list[str]: ...
def job_trace(job: str) -> tuple[str, str]: ...
def identify(job: str, content: str | None) -> tuple[str, str]: ...
def content_parts(length: int) -> list[tuple[int, int]]: ...
def content_of_parts(length: int, parts: Sequence[bytes]) -> str: ...
def run_job(
    job: str,
    *,
    remote: tuple[Callable[[], BinaryIO], str] | None,
    threads: int,
    progress: Progress,
) -> tuple[str, bytes]: ...
def decode(key: str, file: bytes) -> pa.RecordBatch | None: ...
def tables_csv(tables: Sequence[pa.RecordBatch]) -> str: ...
def tables_json(tables: Sequence[pa.RecordBatch], errors: Sequence[tuple[str, str]]) -> str: ...

class Folder:
    def __init__(self, path: str, create: bool) -> None: ...
    def find(self, key: str) -> tuple[pa.RecordBatch | None, bool]: ...
    def put(self, key: str, file: bytes) -> None: ...
    def path(self, key: str) -> PathLike[str]: ...
    def keys(self) -> list[str]: ...

class CacheBase:
    def _items(self) -> list[tuple[Any, Any]]: ...
    def _counts(self) -> tuple[int, int, int]: ...
    def _weighs(self) -> bool: ...
def parse_bytes(text: str) -> int | None: ...
