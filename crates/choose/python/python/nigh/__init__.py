"""nigh: replay traces against replacement policies, sizes and devices.

>>> import nigh
>>> trace = nigh.generate("zipf:blocks=10k", requests=100_000)
>>> result = nigh.sim(trace, policies=["lru", "lirs"], sizes="1%..50%")
>>> len(result)
12
"""

from . import plot
from ._cache import Cache, Stats, cached
from ._levels import levels
from ._nigh import __version__
from ._policy import Access, Policy, PolicyError, check_policy
from ._result import Result
from ._sim import sim
from ._sweep import results, run_job, sweep
from ._timed import devices, policies, timed
from ._trace import Trace, generate

__all__ = [
    "Access",
    "Cache",
    "Policy",
    "PolicyError",
    "Result",
    "Stats",
    "Trace",
    "__version__",
    "cached",
    "check_policy",
    "devices",
    "generate",
    "levels",
    "plot",
    "policies",
    "results",
    "run_job",
    "sim",
    "sweep",
    "timed",
]
