"""Progress on long work: a bar of tqdm, if that is installed and someone watches."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(show: bool | None, prefix: str, total: int | None, unit: str) -> Iterator[Callable[[int], None] | None]:
    """Callback that gets the count done so far; None if no bar is shown.

    ``show`` is whether a bar is wanted. ``None`` shows one on a terminal and in a notebook.
    """
    if show is False or (show is None and not (sys.stderr.isatty() or "ipykernel" in sys.modules)):
        yield None
        return
    try:
        # Without ipywidgets, tqdm warns in a notebook that the bar is plain text.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm
    except ImportError:
        if show:
            raise ImportError("progress=True needs tqdm: pip install tqdm") from None
        yield None
        return
    # A short run shows nothing.
    with tqdm(total=total, desc=prefix, unit=unit, unit_scale=True, leave=False, delay=0.5) as shown:

        def update(done: int) -> None:
            shown.update(done - shown.n)

        yield update
