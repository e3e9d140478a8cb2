"""The notebooks run, their assertions hold, and none is stored with outputs."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
#: Those that use recorded traces where there are some.
OF_TRACES = [path for path in NOTEBOOKS if "NIGH_TRACES" in path.read_text()]


def name_of(path: Path) -> str:
    return path.stem


def execute(path: Path, folder: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute()


def test_there_are_notebooks() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"{number}_" for number in range(1, len(NOTEBOOKS) + 1)]
    assert NOTEBOOKS and OF_TRACES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_is_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None, cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NIGH_TRACES", raising=False)
    execute(path, tmp_path)


@pytest.mark.parametrize("path", OF_TRACES, ids=name_of)
def test_runs_with_recorded_traces(path: Path, tmp_path: Path) -> None:
    if "NIGH_TRACES" not in os.environ:
        pytest.skip("NIGH_TRACES names no folder with traces")
    execute(path, tmp_path)
