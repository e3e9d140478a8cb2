"""Timed simulation, policies and devices; the same rows as the command line's."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nigh


def program() -> str:
    path = os.environ.get("NIGH_PROGRAM")
    if not path:
        pytest.skip("NIGH_PROGRAM names no nigh to compare with")
    return path


def rows_of_program(*arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run([program(), "sim", "--json", *arguments], check=True, capture_output=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return rows


def same(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    assert len(rows) == len(others) > 0
    for row, other in zip(rows, others):
        for name, value in row.items():
            assert other[name] == value, name


SPEC = "zipf:blocks=3k+loop:blocks=700"


def test_the_rows_are_those_of_the_program() -> None:
    trace = nigh.generate(SPEC, requests=50_000, seed=3, writes=0.2)
    flags = ["--generate", SPEC, "--requests", "50k", "--seed", "3", "--writes", "0.2"]
    result = nigh.sim(trace, "lru,lirs,clock-pro,opt", ["2%..32%", "64K"])
    same(result.table.to_pylist(), rows_of_program(*flags, "--policy", "lru,lirs,clock-pro,opt", "--size", "2%..32%,64K"))
    sampled = nigh.sim(trace, "lru,lirs", "10%", sample=0.5, warmup="10%")
    other = rows_of_program(*flags, "--policy", "lru,lirs", "--size", "10%", "--sample", "0.5", "--warmup", "10%")
    same(sampled.table.to_pylist(), other)


def test_the_times_are_those_of_the_program(tmp_path: Path) -> None:
    trace = nigh.generate(SPEC, requests=3_000, seed=3, writes=0.2)
    flags = ["--generate", SPEC, "--requests", "3k", "--seed", "3", "--writes", "0.2", "--policy", "lru,lirs"]
    flags += ["--size", "10%", "--device", "hdd-7200", "--readahead", "linux", "--scheduler", "elevator", "--think", "1ms"]
    # The program's seed is that of the workload and of the device.
    result = nigh.timed(
        trace, "hdd-7200", "lru,lirs", "10%", readahead="linux", scheduler="elevator", think="1ms", seed=3
    )
    same(result.table.to_pylist(), rows_of_program(*flags))
    assert {program["name"] for program in result.info["programs"]} == {SPEC}


def test_requests_come_at_their_times(tmp_path: Path) -> None:
    path = tmp_path / "disk.csv"
    lines = [f"{at * 20_000_000},read,{at * 37 % 500 * 409600},4096" for at in range(500)]
    path.write_text("time_ns,op,offset,length\n" + "\n".join(lines) + "\n")
    settings = ["--policy", "lru", "--size", "10%", "--device", "hdd-7200", "--readahead", "none"]
    for pace in (None, "recorded", "40x", "closed"):
        result = nigh.timed(path, "hdd-7200", "lru", "10%", readahead="none", pace=pace)
        same(result.table.to_pylist(), rows_of_program(str(path), *settings, *(["--pace", pace] if pace else [])))
        row = result.table.to_pylist()[0]
        assert (row["overloaded"], row["idle_share"] is None) == (pace == "40x", pace != "closed")
    with pytest.raises(ValueError, match="pace=fast: expected recorded"):
        nigh.timed(path, pace="fast")
    with pytest.raises(ValueError, match="think does not go with"):
        nigh.timed(path, pace="2x", think="1ms")
    with pytest.raises(ValueError, match="no times"):
        nigh.timed(nigh.Trace([1, 2, 3]), pace="recorded")


def test_programs_share_a_cache() -> None:
    one = nigh.generate("loop:blocks=500", requests=4_000)
    other = nigh.Trace({"offset": pa.array([(500 + at % 900) * 4096 for at in range(4_000)], pa.int64())}, name="other")
    alone = nigh.timed(one, "hdd-7200", "lru", 600).table.to_pylist()[0]
    both = nigh.timed([one, other], "hdd-7200", "lru", 600)
    assert [program["name"] for program in both.info["programs"]] == ["loop:blocks=500", "other"]
    assert both.table.to_pylist()[0]["hit_ratio"] < alone["hit_ratio"]


def test_counters_and_clocks_start_after_a_warm_up() -> None:
    trace = nigh.Trace({"offset": pa.array([at % 100 * 4096 for at in range(300)], pa.int64())}, name="one")
    cold, warm = (
        nigh.timed(trace, "hdd-7200", "lru", 1000, think="1ms", warmup=warmup).table.to_pylist()[0]
        for warmup in (0, "50%")
    )
    assert (cold["hits"], cold["misses"], warm["hits"], warm["misses"]) == (200, 100, 150, 0)
    assert abs(warm["execution_s"] - 0.149) < 1e-6 < cold["execution_s"] - 0.3


def test_shared_9_each_trace_has_disks_of_its_own() -> None:
    trace = nigh.Trace({"offset": pa.array([at * 4096 for at in range(100)], pa.int64())}, name="one")
    apart = nigh.timed([trace, trace], "hdd-7200", "lru", 1000).table.to_pylist()[0]
    shared = nigh.timed([trace, trace], "hdd-7200", "lru", 1000, shared=True).table.to_pylist()[0]
    assert (apart["misses"], shared["misses"]) == (200, 100)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"shared": True}, "there is one trace"),
        ({"device": "hdd-720"}, "did you mean"),
        ({"device": "0=hdd-7200,7=ssd-sata"}, "no request is to volume 7"),
        ({"device": "missing.toml"}, "missing.toml"),
        ({"policies": "opt"}, "needs to know the future"),
        ({"think": "2h"}, "expected a time up to 1h"),
        ({"readahead": "lin"}, "lin"),
        ({"scheduler": "elevator9"}, "elevator9"),
        ({"traces": []}, "there are none"),
        ({"warmup": 100}, "only 100 references"),
    ],
)
def test_wrong_settings(arguments: dict[str, Any], says: str) -> None:
    settings: dict[str, Any] = {"traces": nigh.generate("zipf", requests=100), "policies": "lru", "sizes": "5%"}
    with pytest.raises(ValueError) as raised:
        nigh.timed(**{**settings, **arguments})
    assert says.lower() in str(raised.value).lower()


def test_policies_and_devices_are_listed() -> None:
    policies = {row["name"]: row for row in nigh.policies().to_pylist()}
    assert "hir" in {param["key"] for param in policies["lirs"]["params"]}
    assert policies["opt"]["offline"] and not policies["lru"]["offline"]
    assert "hdd-7200" in nigh.devices()["name"].to_pylist()
