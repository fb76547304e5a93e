"""Between which numbers the states of a cascade stay, for all inputs of every length."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from latchwork.models.cascade_lm import CascadeLM
from latchwork.nn.cascade import Cascade
from latchwork.nn.layer import CascadeLayer


class Interval(NamedTuple):
    """Numbers from `low` to `high`, elementwise, both included."""

    low: Tensor
    high: Tensor

    def contains(self, values: Tensor) -> bool:
        """Whether all values [..., D] lie inside."""
        return bool(((values >= self.low) & (values <= self.high)).all())


@torch.no_grad()
def bounds(model: Cascade | CascadeLM, dtype: torch.dtype | None = None) -> list[Interval]:
    """For every layer an interval [D] that the states of its units never leave, whatever the inputs and their length.

    Every state is a copy of some r, s or first state, and r and s are affine in a normalised input: after LayerNorm,
    before its scale and shift, that is a vector whose numbers sum to 0 and whose length is at most √d_model, after
    RMSNorm one of that length. So r and s have a largest and a smallest value, attained where the input points along
    their weights. The states follow: with U the largest of all s and first states of a unit, x_i ≤ max(s_i,
    max_k min(R_ik, U)), and with L_k the smaller of s_k and the first state, x_i ≥ max(s_i, max_k min(R_ik, L_k)).

    The bounds are widened by what rounding can add to r and s. They hold in evaluation and training, for any tokens.

    Arguments: dtype is the precision in which matrix products are computed, by default that of the weights; under
    autocast to bfloat16, or after `torch.set_float32_matmul_precision("medium")`, say torch.bfloat16.

    Returns: an `Interval` for each layer, its states as in `latchwork.state` (vector units flattened), in float64.
    Raises: ValueError for a model without normalisation, whose inputs have no bound; TypeError for other models.

    Source: arXiv 2605.06384, §4 (states are bounded for inputs of every length).
    """
    cascade = model.cascade if isinstance(model, CascadeLM) else model
    if not isinstance(cascade, Cascade):
        raise TypeError(f"model must be a Cascade or a CascadeLM, got {type(model).__name__}")
    if cascade.config.norm == "none":
        raise ValueError('without normalisation (norm="none") inputs have no bound, so neither have states')
    starts = cascade.initial_state(1)
    return [
        _layer(cast("CascadeLayer", layer), start.unit, dtype)
        for layer, start in zip(cascade.layers, starts, strict=True)
    ]


def _layer(layer: CascadeLayer, start: Tensor, dtype: torch.dtype | None) -> Interval:
    unit, n = layer.unit, layer.unit.degree
    r, s = (_affine(layer.unit_norm, linear, dtype) for linear in (unit.reset, unit.set))
    first = start.double().view(-1, n)  # [U, n]
    r_low, r_high = (a.view(-1, n, n) for a in r)
    s_low, s_high = (a.view(-1, n) for a in s)
    most = torch.maximum(first, s_high).amax(1)  # [U] of any state of the unit
    least = torch.minimum(first, s_low).unsqueeze(1)  # [U, 1, n] of each
    high = torch.maximum(s_high, torch.minimum(r_high, most[:, None, None]).amax(2))
    low = torch.maximum(s_low, torch.minimum(r_low, least).amax(2))
    return Interval(torch.minimum(low, first).flatten(), torch.maximum(high, first).flatten())


def _affine(norm: nn.Module, linear: nn.Linear, dtype: torch.dtype | None) -> Interval:
    """The smallest and largest outputs of a linear map of normalised inputs, [out]."""
    weight, d = linear.weight.double(), linear.in_features
    scale = cast("Tensor", norm.weight).double()
    shift = cast("Tensor | None", getattr(norm, "bias", None))
    middle = linear.bias.double() if shift is None else linear.bias.double() + weight @ shift.double()
    rows = weight * scale
    if isinstance(norm, nn.LayerNorm):
        rows = rows - rows.mean(1, keepdim=True)  # the input sums to 0, so a constant in a row adds nothing
    reach = d**0.5 * rows.norm(dim=1)
    # Of a sum of d products, and of the norm before it.
    largest = d**0.5 * (weight * scale).norm(dim=1) + middle.abs()
    if shift is not None:
        largest = largest + weight.abs() @ shift.double().abs()
    reach = reach + 4 * d * torch.finfo(dtype or linear.weight.dtype).eps * largest
    return Interval(middle - reach, middle + reach)
