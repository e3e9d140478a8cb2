"""A sweep of many jobs: wall and processor time on one thread, on a ThreadPoolExecutor, and on Dask with two workers.

Processor time is that of all processes from start to end: client, scheduler and workers. The last lines run calls that sleep
on such a Dask cluster, the way a sweep runs jobs, so that what Dask spends is not hidden in the noise of the jobs: its share of
the jobs' seconds is the overhead. Its timers cost the same however many threads a worker has, so such calls also run on workers
of four threads, for which no machine needs eight processors.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

#: Large enough that reading it takes no time worth the name beside its replays.
REQUESTS = 20_000
POLICY = "lirs"
#: Background work of Dask in every process, less often; docs/sweep.md recommends it for long sweeps.
QUIET = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "5s",
}
#: The threads of each of the two workers, in the modes that need them.
THREADS = {"dask": 1, "sleep": 1, "sleep-4": 4}
#: How long a process of a cluster that was shut down may take to end.
PATIENCE_S = 20


def job_sizes(sizes: int) -> str:
    return f"1b..{sizes}b/1b"


def write_traces(folder: Path, jobs: int) -> str:
    """One trace under many names, which make as many jobs."""
    import nigh

    offsets = nigh.generate("zipf:blocks=10k", requests=REQUESTS).to_arrow()["offset"].to_pylist()
    trace = folder / "trace"
    trace.write_text("offset\n" + "\n".join(map(str, offsets)) + "\n")
    for job in range(jobs):
        (folder / f"{job:05}.csv").symlink_to(trace)
    return str(folder / "*.csv")


def calibrated(seconds: float) -> int:
    """How many sizes a job has that takes so much processor time."""
    import nigh

    trace = nigh.generate("zipf:blocks=10k", requests=REQUESTS)
    sizes = 50
    while True:
        start = time.process_time()
        nigh.sim(trace, POLICY, job_sizes(sizes), threads=1)
        took = time.process_time() - start
        if took > 0.2 * seconds or sizes >= 8_000:
            return max(1, min(10_000, round(sizes * seconds / took)))
        sizes *= 2


def client(mode: str, scheduler: str, pattern: str, sizes: int, jobs: int, seconds: float, results: str) -> None:
    """A sweep in one mode, in a process of its own."""
    if mode in THREADS:
        from distributed import Client

        from nigh import _dask

        with Client(scheduler_file=scheduler) as cluster:
            cluster.wait_for_workers(2)
            executor: Any = cluster.get_executor()
            if mode != "dask":
                start = time.perf_counter()
                naps = [seconds] * jobs
                assert sorted(_dask.answers(executor, time.sleep, naps)) == [(job, None) for job in range(jobs)]
                print(f"{time.perf_counter() - start:.3f}")
            else:
                run(executor, pattern, sizes, results)
            # Scheduler and workers end, too.
            cluster.shutdown()
    elif mode == "threads":
        with ThreadPoolExecutor(2) as pool:
            run(pool, pattern, sizes, results)
    else:
        with ThreadPoolExecutor(1) as pool:
            run(pool, pattern, sizes, results)


def run(executor: Any, pattern: str, sizes: int, results: str) -> None:
    import nigh

    start = time.perf_counter()
    result = nigh.sweep(pattern, POLICY, job_sizes(sizes), executor=executor, results=results, progress=False)
    assert not result.errors, result.errors
    print(f"{time.perf_counter() - start:.3f}")


def finished(process: subprocess.Popen[str]) -> float:
    """Processor time of a process that ends, with that of its children."""
    _, _, used = os.wait4(process.pid, 0)
    return used.ru_utime + used.ru_stime


def is_finished(process: subprocess.Popen[str]) -> bool:
    """Whether a process has ended; it is left to be waited for."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def measure(mode: str, folder: Path, pattern: str, sizes: int, given: argparse.Namespace) -> tuple[float, float]:
    """Seconds, and seconds of processor time of all processes."""
    scheduler = folder / f"{mode}.json"
    others: list[subprocess.Popen[str]] = []
    environment = dict(os.environ)
    if mode in THREADS:
        environment |= QUIET
        common = ["--no-dashboard", "--scheduler-file", str(scheduler)]
        log = open(folder / f"{mode}.log", "w")

        def start(module: str, *more: str) -> None:
            command = [sys.executable, "-m", f"distributed.cli.{module}", *common, *more]
            others.append(subprocess.Popen(command, stdout=log, stderr=log, text=True, env=environment))

        start("dask_scheduler", "--port", "0", "--host", "127.0.0.1")
        for worker in ("one", "two"):
            start("dask_worker", "--nthreads", str(THREADS[mode]), "--no-nanny", "--local-directory", str(folder / worker))
    where = [str(scheduler), pattern, str(sizes), str(given.jobs), str(given.seconds), str(folder / f"results-{mode}")]
    command = [sys.executable, __file__, "--client", mode, *where]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    wall = float(process.stdout.read() or "nan")
    used = finished(process)
    # A worker that loses its scheduler while it ends may wait for it without end.
    for other in others:
        start_s = time.monotonic()
        while not is_finished(other) and time.monotonic() - start_s < PATIENCE_S:
            time.sleep(0.05)
        if not is_finished(other):
            # Popen.kill() might wait for it, and take its times.
            os.kill(other.pid, signal.SIGKILL)
    return wall, used + sum(map(finished, others))


def main() -> None:
    if sys.argv[1:2] == ["--client"]:
        given_mode, scheduler, traces, *numbers, folder_of_results = sys.argv[2:]
        client(given_mode, scheduler, traces, int(numbers[0]), int(numbers[1]), float(numbers[2]), folder_of_results)
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0, help="processor time of a job (default: %(default)s)")
    parser.add_argument("--modes", default="one,threads,dask,sleep,sleep-4", help="what to run (default: %(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pattern, sizes = write_traces(folder, given.jobs), calibrated(given.seconds)
        print(f"{given.jobs} jobs of {sizes} sizes of {POLICY}, about {given.seconds} s each")
        first, results = None, []
        for mode in given.modes.split(","):
            wall, cpu = measure(mode, folder, pattern, sizes, given)
            if mode.startswith("sleep"):
                said = f"{100 * cpu / (given.jobs * given.seconds):6.2f} % of the jobs' seconds; threads of a worker: {THREADS[mode]}"
            else:
                first = cpu if first is None else first
                said = f"{cpu / first:6.3f} of the first line's"
                results.append({path.name: path.read_bytes() for path in (folder / f"results-{mode}").iterdir()})
            print(f"  {mode:8} {wall:9.2f} s  {cpu:9.2f} s of processor time  {said}", flush=True)
        if results:
            assert all(result == results[0] for result in results) and len(results[0]) == given.jobs, "results differ"
            print(f"  {len(results)} x {given.jobs} results: the same, byte for byte")


if __name__ == "__main__":
    main()
