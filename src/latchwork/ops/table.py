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
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from latchwork.ops.arguments import STATES, check_flags
from latchwork.ops.scan import minmax_matrix_scan

_SPREAD_ELEMENTS = 1 << 22  # of R over time at once: 16 MiB in float32
_LARGE = 32  # degree above which the loop of the specification is faster than composing steps


class SparseTable(NamedTuple):
    """R and s of every letter as the kernel reads them: of R what can decide something, in the dtype of states."""

    begins: Tensor
    """[A·n + 1] int64: where the entries of each row begin."""
    columns: Tensor
    """[entries] int64."""
    values: Tensor
    """[entries]."""
    sets: Tensor
    """[A, n]."""


def sparse_table(R: Tensor, s: Tensor) -> SparseTable | None:  # noqa: N803
    """Get R [A, n, n] and s [A, n] on the CPU ready for `minmax_table_scan`; None where one is NaN.

    The kernel compares, and comparing does not carry NaN on.
    """
    if R.isnan().any() or s.isnan().any():
        return None
    wide = STATES[R.dtype]
    decisive = s.unsqueeze(-1) < R
    begins = torch.nn.functional.pad(decisive.sum(-1).flatten().cumsum(0), (1, 0))
    return SparseTable(begins, decisive.nonzero()[:, 2].contiguous(), R[decisive].to(wide), s.to(wide).contiguous())


def minmax_table_scan(
    R: Tensor,  # noqa: N803  (the paper's name)
    s: Tensor,
    letters: Tensor,
    state: Tensor,
    *,
    mask: Tensor | None = None,
    table: SparseTable | None = None,
) -> tuple[Tensor, Tensor]:
    """Run x_t = (R[a_t] ⊗ x_{t−1}) ⊕ s[a_t] over the letters a_t of many words at once.

    Arguments:
        R: [A, n, n] a reset matrix for each letter, in a dtype of `minmax_scan`.
        s: [A, n] a set vector for each letter.
        letters: [B, T] integers in 0 … A − 1.
        state: [B, n] the state before the first letter; float32, or float64 beside float64.
        mask: [B, T] bool; at False the state is kept.
        table: `sparse_table(R, s)`, for many calls with the same R and s.

    Returns: x [B, T, n] every state in the dtype of R and s; last [B, n] the last one. The same values and gradients
    as `minmax_matrix_scan` of R[letters] and s[letters].

    Raises: TypeError, ValueError where the parts do not fit together.
    """
    letters = _check(R, s, letters, state)
    mask = None if mask is None else check_flags(mask, "mask", letters)
    inputs = (R, s, state)
    plain = all(not a.requires_grad for a in inputs) or not torch.is_grad_enabled()
    # The kernel carries on neither NaN nor tangents.
    if (
        plain
        and forward_ad._current_level < 0
        and R.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not state.isnan().any()
    ):
        numbers = letters
        if table is None and letters.numel() < len(R):  # getting all letters ready would take longer than the steps do
            used, numbers = letters.unique(return_inverse=True)
            table = sparse_table(R[used], s[used])
        elif table is None:
            table = sparse_table(R, s)
        if table is not None:
            x, last = _kernel(table, numbers, state, mask)
            return x.to(s.dtype), last
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


def _kernel(table: SparseTable, letters: Tensor, state: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """On the CPU and without gradients, one row of the batch a thread at a time."""
    letters, start = letters.contiguous(), state.contiguous()
    (batch, time), n = letters.shape, table.sets.shape[1]
    x = torch.empty(batch, time, n, dtype=state.dtype)
    addresses = [a.data_ptr() for a in (*table, letters, start, x)]
    fields = [0, batch, time, n, *addresses, 0 if mask is None else mask.data_ptr()]
    if x.numel():
        team = importlib.import_module("latchwork.ops.team")
        block = (ctypes.c_int64 * len(fields))(*fields)
        team.run(_compiled(state.dtype).address, block, min(batch, team.size()))
    return x, x[:, -1].clone() if time else state.clone()


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
    if R.dtype != s.dtype or R.dtype not in STATES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in STATES)
        raise TypeError(f"R and s must share a dtype of {names}, got {R.dtype} and {s.dtype}")
    if letters.ndim != 2 or letters.is_floating_point() or letters.dtype == torch.bool:
        raise ValueError(f"letters must be integers [B, T], got {letters.dtype} {tuple(letters.shape)}")
    letters = letters.long()  # the others cannot all be compared, nor be indices
    if letters.numel() and not (letters.min() >= 0 and letters.max() < len(R)):
        raise ValueError(f"letters must be in 0 … {len(R) - 1}, got {int(letters.min())} … {int(letters.max())}")
    wide = STATES[R.dtype]
    if state.shape != (len(letters), R.shape[1]) or state.dtype != wide:
        wanted = f"{wide} of {(len(letters), R.shape[1])}"
        raise ValueError(f"state must be {wanted} beside these letters, got {state.dtype} of {tuple(state.shape)}")
    return letters
