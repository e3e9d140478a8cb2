"""The examples in docstrings and in the README run, and every public name is described."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv

import nigh

MODULES = sorted(module.name for module in pkgutil.iter_modules(nigh.__path__, "nigh.") if module.name != "nigh.__main__")


@pytest.mark.parametrize("name", ["nigh", *MODULES])
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    trace = nigh.generate("zipf:blocks=1k", requests=1_000)
    failed, _ = doctest.testmod(module, extraglobs={"nigh": nigh, "trace": trace}, verbose=False)
    assert not failed


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    with_examples = {name for name in ["nigh", *MODULES] if finder.find(importlib.import_module(name))}
    assert {"nigh", "nigh._policy", "nigh._cache"} <= with_examples


def test_everything_public_is_described() -> None:
    missing = []
    for name in nigh.__all__:
        thing = getattr(nigh, name)
        if not inspect.getdoc(thing):
            missing.append(name)
        if not inspect.isclass(thing):
            continue
        for member, value in vars(thing).items():
            described = inspect.getdoc(value) or not (callable(value) or isinstance(value, property))
            if not member.startswith("_") and not described:
                missing.append(f"{name}.{member}")
    assert not missing


def test_the_generators_are_listed() -> None:
    with pytest.raises(ValueError, match="expected one of") as error:
        nigh.generate("none")
    known = str(error.value).split("expected one of ")[1].split(", ")
    listed = re.findall(r"^(\S+) {2,}\S", inspect.getdoc(nigh.generate) or "", re.MULTILINE)
    assert known == [name for name in listed if name != "generator"]


def test_the_examples_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, in order, as one program."""
    pytest.importorskip("matplotlib").use("Agg")
    readme = Path(__file__).parent.parent / "README.md"
    examples = re.findall(r"^```python\n(.*?)^```", readme.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) > 4
    monkeypatch.chdir(tmp_path)
    make_traces(tmp_path)
    program = "\n".join(examples)
    exec(compile(program, str(readme), "exec"), {"__name__": "readme"})


def make_traces(folder: Path) -> None:
    """The traces that the README names: one of a virtual machine's disk, and a folder with two."""
    requests = nigh.generate("zipf:blocks=2k", requests=20_000).to_arrow().to_pylist()
    with pa.CompressedOutputStream(str(folder / "server.vscsi.zst"), "zstd") as file:
        for serial, row in enumerate(requests):
            # vscsi, version 1: serial, length, segments, command (0x28 reads), version, sector, microseconds.
            sector, time_us = row["offset"] // 512, row["time_ns"] // 1000
            file.write(struct.pack("<IIIHHQQ", serial, row["length"], 1, 0x28, 0x0100, sector, time_us))
    (folder / "traces").mkdir()
    for seed, name in enumerate(["web.csv", "db.csv"]):
        trace = nigh.generate("zipf:blocks=2k", requests=20_000, seed=seed)
        csv.write_csv(trace.to_arrow().select(["time_ns", "op", "offset", "length"]), folder / "traces" / name)
