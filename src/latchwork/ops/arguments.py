"""What scans are given: refused with a reason, or checked, with states in full and in their dtype."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

STATES = {  # the dtype of states beside that of r and s
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}


def check_scalar(r: Tensor, s: Tensor) -> None:
    """Refuse what cannot be steps of scalar units."""
    _check_tensors("r", r, s)
    if r.ndim != 3 or r.shape != s.shape:
        raise ValueError(f"r and s must both be [B, T, D], got r {tuple(r.shape)} and s {tuple(s.shape)}")


def check_vector(R: Tensor, s: Tensor) -> None:  # noqa: N803  (the paper's name)
    """Refuse what cannot be steps of vector units."""
    _check_tensors("R", R, s)
    if R.ndim != 5 or s.ndim != 4 or R.shape != (*s.shape, s.shape[-1]):
        raise ValueError(f"R must be [B, T, U, n, n] and s [B, T, U, n], got R {tuple(R.shape)} and s {tuple(s.shape)}")


def _check_tensors(r_name: str, r: Tensor, s: Tensor) -> None:
    for name, a in ((r_name, r), ("s", s)):
        if not isinstance(a, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(a).__name__}")
        if a.layout != torch.strided or a.is_nested:
            kind = "a nested tensor" if a.is_nested else a.layout
            raise TypeError(f"{name} must be a dense tensor, got {kind}; for sequences of several lengths use mask")
    if r.dtype != s.dtype or r.device != s.device:
        raise TypeError(
            f"{r_name} and s must share dtype and device, got {r.dtype} on {r.device} and {s.dtype} on {s.device}"
        )
    if r.dtype not in STATES:
        raise TypeError(
            f"{r_name} and s must be float32, float64, bfloat16 or float16, got {r.dtype}; "
            "convert them, for example with .float()"
        )


def scan_inputs(r, s, state, x0, mask, reset) -> tuple:
    """What the backends take: everything checked, states in full and in their dtype."""
    batch, units = s.shape[0], s.shape[2:]
    if x0 is None:
        x0 = s.new_zeros(units, dtype=STATES[s.dtype])
    else:
        x0 = _check_state(x0, "x0", s, tuple(units), (batch, *units))
    x0 = x0.expand(batch, *units)
    state = x0 if state is None else _check_state(state, "state", s, (batch, *units))
    mask = None if mask is None else check_flags(mask, "mask", s)
    reset = None if reset is None else check_flags(reset, "reset", s)
    return r, s, state, x0, mask, reset


def _check_state(a: Tensor, name: str, s: Tensor, *shapes: tuple[int, ...]) -> Tensor:
    """`a` in the dtype of states beside s; refuses another shape or device, and a dtype that would lose digits."""
    if not isinstance(a, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(a).__name__}")
    # Of equal length: an exported program would keep what is learned from comparing (B, D) with (D,).
    if tuple(a.shape) not in [shape for shape in shapes if len(shape) == a.ndim]:
        wanted = " or ".join(str(shape) for shape in shapes)
        raise ValueError(f"{name} must be {wanted} beside s of {tuple(s.shape)}, got {tuple(a.shape)}")
    wide = STATES[s.dtype]
    if a.device != s.device or a.dtype not in STATES or torch.promote_types(a.dtype, wide) != wide:
        raise TypeError(f"{name} must be {wide} on {s.device} beside s in {s.dtype}, got {a.dtype} on {a.device}")
    return a if a.dtype == wide else a.to(wide)


def check_like(a: Tensor, name: str, like: Tensor) -> None:
    """Refuse inputs of another dtype or device than the parameters; autocast converts, so dtypes may differ there."""
    if a.device != like.device or (a.dtype != like.dtype and not torch.is_autocast_enabled(a.device.type)):
        raise TypeError(
            f"{name} must be {like.dtype} on {like.device} like the parameters, got {a.dtype} on {a.device}"
        )


def check_flags(flags: Tensor, name: str, like: Tensor) -> Tensor:
    """Refuse a mask or reset that is not bool [B, T] beside `like` [B, T, …]."""
    if not isinstance(flags, Tensor) or flags.dtype != torch.bool:
        kind = flags.dtype if isinstance(flags, Tensor) else type(flags).__name__
        raise TypeError(f"{name} must be a bool tensor, got {kind}")
    if flags.shape != like.shape[:2]:
        raise ValueError(f"{name} must be [B, T] = {tuple(like.shape[:2])}, got {tuple(flags.shape)}")
    if flags.device != like.device:
        raise TypeError(f"{name} must be on {like.device}, got {flags.device}")
    return flags.contiguous()


class Boundaries(NamedTuple):
    """Documents that lie one after another in a row, checked: comparing waits for a GPU."""

    first: Tensor
    """[1, T] bool: the first step of every document but the first."""
    last: Tensor
    """[N] int64: the last step of every document."""

    def resets(self, asked: Tensor | None) -> Tensor:
        """[1, T] bool: at the first step of every document but the first, beside those that are asked for."""
        return self.first if asked is None else self.first | asked


def check_cu_seqlens(cu_seqlens: Tensor | Boundaries, like: Tensor) -> Boundaries:
    """The documents; refuses boundaries that do not fit `like` [B, T, …], but for those that were checked before."""
    if isinstance(cu_seqlens, Boundaries):
        return cu_seqlens
    batch, time = like.shape[:2]
    if not isinstance(cu_seqlens, Tensor) or cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise TypeError("cu_seqlens must be an int32 or int64 tensor [N + 1] of document boundaries")
    if batch != 1:
        raise ValueError(f"cu_seqlens packs documents in one row, so B must be 1, got {batch}")
    c = cu_seqlens
    if c.ndim != 1 or len(c) < 2 or c[0] != 0 or c[-1] != time or bool((c[1:] <= c[:-1]).any()):
        raise ValueError(f"cu_seqlens must rise from 0 to T = {time} without empty documents, got {c.tolist()}")
    first = torch.zeros(1, time, dtype=torch.bool, device=like.device)
    first[0, c[1:-1].long()] = True
    return Boundaries(first, c[1:].long().to(like.device) - 1)
