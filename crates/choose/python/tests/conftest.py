"""Functions of several test files."""

from __future__ import annotations

import signal
import subprocess
import sys
import time


def interrupt(script: str) -> tuple[str, float]:
    """Runs a script and presses Ctrl-C 0.3 s after it prints a line. Returns its errors, and the seconds until it ended.

    In a process of its own: libraries of other tests handle signals, too.
    """
    command = [sys.executable, "-c", script]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    running.stdout.readline()
    time.sleep(0.3)
    start = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=120)
    return errors, time.monotonic() - start
