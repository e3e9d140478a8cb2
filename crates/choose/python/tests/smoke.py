"""The first lines of a newcomer; run with every interpreter that there is."""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pyarrow.csv
from distributed import Client, LocalCluster

import nigh


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.csv"
        requests = nigh.generate("zipf:blocks=1k", requests=10_000).to_arrow()
        pyarrow.csv.write_csv(requests.set_column(1, "op", requests["op"].cast("string")), path)

        t = nigh.Trace(path)
        t.head().to_pandas()
        t.mrc("lru")
        r = nigh.sim(t, policies=["lru", "lirs", "clock-pro"], sizes="1%..50%")
        r.to_pandas()
        with ThreadPoolExecutor(2) as pool:
            swept = nigh.sweep([path], ["lru", "lirs", "clock-pro"], "1%..50%", executor=pool)
        assert swept.table["hits"].to_pylist() == r.table["hits"].to_pylist()
        cache = nigh.Cache(2, "lru")
        cache["a"] = 1
        assert cache.get("a") == 1 and cache.get("b") is None

        # A worker has this package, as docs/sweep.md installs it.
        with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster, Client(cluster) as client:
            assert client.run(version, "nigh-cache").popitem()[1] == nigh.__version__
            swept = nigh.sweep([path], ["lru", "lirs", "clock-pro"], "1%..50%", executor=client.get_executor())
        assert swept.table["hits"].to_pylist() == r.table["hits"].to_pylist()
        print(f"{sys.version.split()[0]}: {len(r)} rows of nigh {nigh.__version__}")


# Processes of workers import this file, too.
if __name__ == "__main__":
    main()
