"""Calls on the workers of a Dask cluster, at the least cost for each."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import Any

#: How many calls a message to the scheduler has: so few that it is of some megabytes at most.
BATCH = 1_000
#: The answers of so much of the time since the start, but of no more than a second, are fetched together.
PAUSE = 0.1
LONGEST_PAUSE_S = 1.0


def client_of(executor: Any) -> Any:
    """The client of an executor of Dask, or the client itself; nothing if the executor is of another kind."""
    if type(executor).__module__.split(".")[0] != "distributed":
        return None
    # A client has get_executor(), and its executor the client.
    return getattr(executor, "_client", executor)


def on_all_workers(client: Any, function: Callable[[], Any]) -> dict[str, Any]:
    """Results or exceptions of a function on each worker; waits for a first one."""
    if not client.scheduler_info()["workers"]:
        warnings.warn("the cluster has no workers yet: waiting for one", stacklevel=2)
        client.wait_for_workers(1)
    answers: dict[str, Any] = client.run(function, on_error="return")
    return answers


def answers(executor: Any, function: Callable[[Any], Any], inputs: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
    """Calls ``function`` with each input on the workers: gives the place of the input, and what was returned or the exception, in the
    order of completion. Calls that have not begun are cancelled when the iterator is closed.
    """
    import distributed

    as_completed: Any = distributed.as_completed
    client = client_of(executor)
    # Of get_executor(workers=..., retries=...).
    options = {**getattr(executor, "_kwargs", {}), "pure": False}
    start = time.monotonic()
    futures = client.map(function, inputs, batch_size=BATCH, **options)
    places = {future: at for at, future in enumerate(futures)}
    del futures
    # It keeps no future that it has given: an answer is let go on its worker once it is taken out of `places`.
    completed = as_completed(places, raise_errors=False)
    try:
        while places:
            batch = completed.next_batch()
            for future, answer in zip(batch, _fetched(client, batch)):
                yield places.pop(future), answer
            del batch, future
            if places:
                time.sleep(min(PAUSE * (time.monotonic() - start), LONGEST_PAUSE_S))
    finally:
        client.cancel(list(places))


def _fetched(client: Any, futures: Sequence[Any]) -> list[Any]:
    if all(future.status == "finished" for future in futures):
        try:
            return list(client.gather(futures))
        except Exception:
            # One is lost, or cannot be read: which one is asked below.
            pass
    return [_result(future) for future in futures]


def _result(future: Any) -> Any:
    try:
        return future.result()
    except Exception as error:
        # Its traceback would keep the futures.
        return error.with_traceback(None)
