"""A sweep on a Dask cluster of three machines, which are network namespaces; one of them dies halfway."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import nigh

POLICIES = ["lru", "lirs", "opt"]
SIZES = "1b..200b/1b"
TRACES = 24
#: How long anything may take, in seconds.
PATIENCE = 120

CLIENT = """
import json, sys
from distributed import Client
import nigh

if __name__ == "__main__":
    scheduler, traces, results, policies, sizes, workers = sys.argv[1:]
    with Client(scheduler_file=scheduler, timeout=60) as client:
        client.wait_for_workers(int(workers), timeout=60)
        result = nigh.sweep(traces, json.loads(policies), sizes, executor=client.get_executor(), results=results)
        workers = len(client.scheduler_info()["workers"])
    print(json.dumps({**result.info, "workers": workers, "errors": result.errors}))
"""


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)


class Machines:
    """A scheduler and two workers, each in a network namespace of its own, joined by a bridge."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.names = [f"nigh-{os.getpid()}-{name}" for name in ("head", "one", "two")]
        self.scheduler = folder / "scheduler.json"
        head = self.names[0]
        for name in self.names:
            run("ip", "netns", "add", name)
            stack.callback(run, "ip", "netns", "delete", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", head, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", head, "addr", "add", "10.97.0.1/24", "dev", "bridge")
        run("ip", "-n", head, "link", "set", "bridge", "up")
        for at, name in enumerate(self.names[1:], 2):
            run("ip", "-n", head, "link", "add", f"to{at}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "-n", head, "link", "set", f"to{at}", "master", "bridge", "up")
            run("ip", "-n", name, "addr", "add", f"10.97.0.{at}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
        self.start(0, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--host", "10.97.0.1",
                   "--scheduler-file", str(self.scheduler))  # fmt: skip

    def start(self, at: int, *arguments: str) -> subprocess.Popen[str]:
        """Python on a machine, in a group of processes that ends with the test."""
        with open(self.folder / f"{self.names[at]}.log", "a") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.names[at], sys.executable, *arguments],
                stdout=subprocess.PIPE if arguments[0] == "-c" else log, stderr=log, text=True, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip
        self.stack.callback(end, process)
        return process

    def worker(self, at: int) -> subprocess.Popen[str]:
        wait(self.scheduler.exists, "the scheduler")
        return self.start(at, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(self.scheduler), "--no-nanny",
                          "--nthreads", "1", "--no-dashboard", "--death-timeout", "60",
                          "--local-directory", str(self.folder / f"worker{at}"))  # fmt: skip

    def client(self, traces: Path, results: Path, workers: int) -> subprocess.Popen[str]:
        """A sweep that begins when there are so many workers."""
        where = [str(self.scheduler), str(traces / "*.csv"), str(results)]
        return self.start(0, "-c", CLIENT, *where, json.dumps(POLICIES), SIZES, str(workers))


def end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait(until: object, what: str) -> None:
    start = time.monotonic()
    assert callable(until)
    while not until():
        assert time.monotonic() - start < PATIENCE, f"{what}: not within {PATIENCE} s"
        time.sleep(0.02)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    pytest.importorskip("distributed")
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    if subprocess.run(["ip", "netns", "add", f"nigh-{os.getpid()}-try"], capture_output=True).returncode != 0:
        pytest.skip("the kernel permits no network namespaces")
    run("ip", "netns", "delete", f"nigh-{os.getpid()}-try")
    with ExitStack() as stack:
        yield Machines(tmp_path, stack)


def test_a_worker_that_dies_halfway_changes_no_byte(machines: Machines, tmp_path: Path) -> None:
    traces, here, there = tmp_path / "traces", tmp_path / "here", tmp_path / "there"
    traces.mkdir()
    for at in range(TRACES):
        requests = nigh.generate("zipf:blocks=1k", requests=4_000, seed=at + 1).to_arrow()
        offsets = "\n".join(map(str, requests["offset"].to_pylist()))
        (traces / f"t{at:02}.csv").write_text(f"offset\n{offsets}\n")
    nigh.sweep(str(traces / "*.csv"), POLICIES, SIZES, results=here)

    machines.worker(1)
    victim = machines.worker(2)
    client = machines.client(traces, there, 2)
    wait(lambda: len(files(there)) >= TRACES // 4 or client.poll() is not None, "a quarter of the jobs")
    os.killpg(victim.pid, signal.SIGKILL)
    before = len(files(there))
    output, _ = client.communicate(timeout=PATIENCE)
    report = json.loads(output.splitlines()[-1])
    assert before < TRACES, "the sweep was over before the worker died"
    # On a busy machine, the scheduler may miss the other one for a moment, too.
    assert report["errors"] == {} and report["replayed"] == TRACES and report["workers"] < 2, report
    assert files(there) == files(here)

    times = {path: path.stat().st_mtime_ns for path in there.iterdir()}
    output, _ = machines.client(traces, there, 1).communicate(timeout=PATIENCE)
    report = json.loads(output.splitlines()[-1])
    assert report["already_there"] == TRACES and report["replayed"] == 0, report
    assert times == {path: path.stat().st_mtime_ns for path in there.iterdir()}
