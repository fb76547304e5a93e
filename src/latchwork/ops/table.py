"""The scan of one vector unit whose steps are letters: R and s are looked up in tables and never spread over time.

A unit of degree 136 over 10^6 letters would need 70 GB for R spread over time; the table of a letter stays in the
cache. An entry R[i, k] ≤ s[i] can never decide anything, so it is left out: for a deterministic automaton n of n²
entries are left. Where gradients are wanted, and off the CPU, R is spread over a few steps at a time and the scan does
the rest.
"""

from __future__ import annotations

import ctypes
import functools
import importlib

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from latchwork.ops.arguments import check_flags
from latchwork.ops.scan import minmax_matrix_scan

_SPREAD_ELEMENTS = 1 << 22  # of R over time at once: 16 MiB in float32
_LARGE = 32  # degree above which the loop of the specification is faster than composing steps


def minmax_table_scan(
    R: Tensor,  # noqa: N803  (the paper's name)
    s: Tensor,
    letters: Tensor,
    state: Tensor,
    *,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run x_t = (R[a_t] ⊗ x_{t−1}) ⊕ s[a_t] over the letters a_t of many words at once.

    Arguments:
        R: [A, n, n] a reset matrix for each letter, in a dtype of `minmax_scan`.
        s: [A, n] a set vector for each letter.
        letters: [B, T] integers in 0 … A − 1.
        state: [B, n] the state before the first letter; float32, or float64 beside float64.
        mask: [B, T] bool; at False the state is kept.

    Returns: x [B, T, n] every state in the dtype of R and s; last [B, n] the last one. The same values and gradients
    as `minmax_matrix_scan` of R[letters] and s[letters].

    Raises: TypeError, ValueError where the parts do not fit together.
    """
    letters = _check(R, s, letters, state)
    mask = None if mask is None else check_flags(mask, "mask", letters)
    inputs = (R, s, state)
    plain = all(not a.requires_grad for a in inputs) or not torch.is_grad_enabled()
    # The kernel compares, and comparing does not carry NaN on; nor does it carry tangents on.
    if (
        plain
        and forward_ad._current_level < 0
        and R.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not any(a.isnan().any() for a in inputs)
    ):
        return _kernel(R, s, letters, state, mask)
    time = max(1, _SPREAD_ELEMENTS // max(1, len(letters) * R.shape[1] ** 2))
    parts = []
    for start in range(0, letters.shape[1], time):
        here = slice(start, start + time)
        arguments = R, s, letters[:, here], state, None if mask is None else mask[:, here]
        # R over time is made again for the gradient: all of it at once may not fit into memory.
        x, state = _spread(*arguments) if plain else checkpoint(_spread, *arguments, use_reentrant=False)
        parts.append(x)
    return (torch.cat(parts, 1) if parts else s.new_empty(*letters.shape, s.shape[1])), state


def _spread(R, s, letters, state, mask) -> tuple[Tensor, Tensor]:  # noqa: N803
    backend = "reference" if R.shape[-1] > _LARGE else "auto"
    x, last = minmax_matrix_scan(
        R[letters].unsqueeze(2), s[letters].unsqueeze(2), state.unsqueeze(1), mask=mask, backend=backend
    )
    return x.squeeze(2), last.squeeze(1)


def _kernel(R, s, letters, state, mask) -> tuple[Tensor, Tensor]:  # noqa: N803
    """On the CPU and without gradients: tables in the dtype of states, one row of the batch a thread at a time."""
    wide, dtype = state.dtype, s.dtype
    if letters.numel() < len(R):  # few steps, and getting tables ready would take longer than they do
        used, letters = letters.unique(return_inverse=True)
        R, s = R[used], s[used]  # noqa: N806
    letters, start, sets = letters.contiguous(), state.contiguous(), s.to(wide).contiguous()
    decisive = s.unsqueeze(-1) < R
    begins = torch.nn.functional.pad(decisive.sum(-1).flatten().cumsum(0), (1, 0))
    columns, values = decisive.nonzero()[:, 2].contiguous(), R[decisive].to(wide)
    batch, time = letters.shape
    x = torch.empty(batch, time, s.shape[1], dtype=wide)
    addresses = [a.data_ptr() for a in (begins, columns, values, sets, letters, start, x)]
    fields = [0, batch, time, s.shape[1], *addresses, 0 if mask is None else mask.data_ptr()]
    if x.numel():
        team = importlib.import_module("latchwork.ops.team")
        block = (ctypes.c_int64 * len(fields))(*fields)
        team.run(_compiled(wide).address, block, min(batch, team.size()))
    last = x[:, -1].clone() if time else state.clone()
    return x.to(dtype), last


@functools.cache
def _compiled(dtype: torch.dtype):
    """The kernel for states of a dtype; numba is imported when it is first needed."""
    kernels = importlib.import_module("latchwork.ops.table_kernel")
    return kernels.table_kernel(dtype)


def _check(R, s, letters, state) -> Tensor:  # noqa: N803
    """The letters as int64, where all fits together."""
    for name, a in (("R", R), ("s", s), ("letters", letters), ("state", state)):
        if not isinstance(a, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(a).__name__}")
        if a.device != R.device:
            raise TypeError(f"{name} must be on {R.device} as R is, got {a.device}")
    if R.ndim != 3 or R.shape[1] != R.shape[2] or s.shape != R.shape[:2]:
        raise ValueError(f"R must be [A, n, n] and s [A, n], got R {tuple(R.shape)} and s {tuple(s.shape)}")
    if R.dtype != s.dtype:
        raise TypeError(f"R and s must share a dtype, got {R.dtype} and {s.dtype}")
    if letters.ndim != 2 or letters.is_floating_point() or letters.dtype == torch.bool:
        raise ValueError(f"letters must be integers [B, T], got {letters.dtype} {tuple(letters.shape)}")
    letters = letters.long()  # the others cannot all be compared, nor be indices
    if letters.numel() and not (letters.min() >= 0 and letters.max() < len(R)):
        raise ValueError(f"letters must be in 0 … {len(R) - 1}, got {int(letters.min())} … {int(letters.max())}")
    wide = torch.promote_types(R.dtype, torch.float32)
    if state.shape != (len(letters), R.shape[1]) or state.dtype != wide:
        wanted = f"{wide} of {(len(letters), R.shape[1])}"
        raise ValueError(f"state must be {wanted} beside these letters, got {state.dtype} of {tuple(state.shape)}")
    return letters
