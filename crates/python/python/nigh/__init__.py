"""nigh: replay traces against replacement policies, sizes and devices.

>>> import nigh
>>> trace = nigh.generate("zipf:blocks=10k", requests=100_000)
>>> result = nigh.sim(trace, policies=["lru", "lirs"], sizes="1%..50%")
>>> result.to_pandas()  # doctest: +SKIP
"""

from ._nigh import __version__
from ._result import Result
from ._sim import sim
from ._trace import Trace, generate

__all__ = ["Result", "Trace", "__version__", "generate", "sim"]
