"""Several cache levels: figure 5.9 of the dissertation, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nigh


@pytest.fixture(scope="module")
def random() -> nigh.Trace:
    """Uniform references to 65,536 blocks of 8 KB: the dissertation's *random*."""
    blocks = np.random.default_rng(7).integers(0, 65_536, 600_000).astype(np.uint64)
    return nigh.Trace({"offset": blocks * 8192}, block_size=8192)


def test_figure_5_9(random: nigh.Trace) -> None:
    """Published, three levels of 12,800 blocks: indLRU hits 19.5, 1.7 and 0.3 %; uniLRU 19.5 % at each, demoting 80.5 and
    60.9 %; ULC demotes at most 25 % at either boundary."""
    result = nigh.levels(random, [12_800] * 3, "ulc,unilru,indlru", costs_ms=[0, 1, 1.2, 11.2], warmup=100_000)
    rows = {row["scheme"]: row for row in result.table.to_pylist()}

    def percent(scheme: str, *names: str) -> list[float]:
        return [100 * rows[scheme][name] / rows[scheme]["references"] for name in names]

    hits = ("hits_1", "hits_2", "hits_3")
    assert percent("ind:lru", *hits) == pytest.approx([19.5, 1.7, 0.3], abs=0.3)
    assert percent("unilru", *hits) == pytest.approx([19.5, 19.6, 19.5], abs=0.3)
    assert percent("unilru", "demotions_1", "demotions_2") == pytest.approx([80.5, 60.9], abs=0.5)
    assert max(percent("ulc", "demotions_1", "demotions_2")) < 25
    assert rows["ulc"]["mean_ms"] < rows["ind:lru"]["mean_ms"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"schemes": "ulcc"}, "ulcc"),
        ({"schemes": "ind:opt"}, "future"),
        ({"sizes": ["1%..4%"]}, "not a range"),
        ({"sizes": []}, "sizes"),
        ({"costs_ms": [0, 1]}, "expected 3 times"),
        ({"costs_ms": [0, 2, 1]}, "ascending"),
    ],
)
def test_wrong_levels(random: nigh.Trace, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        nigh.levels(random, **{"sizes": ["1%", "5%"], **arguments})
