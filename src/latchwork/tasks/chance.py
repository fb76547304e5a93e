"""Random numbers that can be asked for at any place: draw t of sample i of seed k, whatever was drawn before.

The generator is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), whose t-th output is a hash of its seed and t.
Every sample is a generator with a seed of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: Words) -> Words:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def derive(keys: Words, path: NDArray[np.integer] | int) -> Words:
    """Seeds of the generators below `keys`; the paths of one key give independent ones. Both broadcast."""
    with np.errstate(over="ignore"):
        return _mix(
            _mix(np.asarray(keys, dtype=np.uint64)) + (np.asarray(path).astype(np.uint64) + np.uint64(1)) * _GOLDEN
        )


def words(keys: Words, first: int, count: int) -> Words:
    """Draws `first` … `first + count − 1` of each generator, keys [N] -> [N, count] uniform 64-bit words."""
    with np.errstate(over="ignore"):
        steps = np.arange(first + 1, first + count + 1).astype(np.uint64) * _GOLDEN
        return _mix(keys[:, None] + steps)


def below(draws: Words, n: int) -> NDArray[np.int64]:
    """Uniform integers in 0 … n − 1, by the upper 32 bits of each word (the bias is below n / 2^32)."""
    return ((draws >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)).astype(np.int64)


def uniform(draws: Words) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), by the upper 53 bits of each word."""
    return (draws >> np.uint64(11)).astype(np.float64) / (1 << 53)
