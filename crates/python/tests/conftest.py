"""Fixtures of several test files."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Presses Ctrl-C in 0.3 s.

    Python drops what is raised in a callback of its garbage collector, and hypothesis has such a callback.
    """
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    yield
    timer.join()
    gc.callbacks.extend(callbacks)
