"""How weights start (arXiv 2605.06384, appendix on training)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from latchwork.nn.config import CascadeConfig


def small_init_(linear: nn.Linear) -> None:
    """Normal weights with standard deviation √(2 / (5·fan_in)), zero bias."""
    _normal_(linear, math.sqrt(2 / (5 * linear.in_features)))


def output_init_(linear: nn.Linear, n_layers: int) -> None:
    """For matrices that write to the residual stream: standard deviation 2 / (L·√fan_in), zero bias."""
    _normal_(linear, 2 / (n_layers * math.sqrt(linear.in_features)))


def reset_set_init_(reset: nn.Linear, set_: nn.Linear, config: CascadeConfig) -> None:
    """The projections to R and s.

    `asymmetric` lifts s above r, so that at first every step of a scalar unit writes; `keep` lifts r above s, so that
    most steps keep and gradients reach far back (docs/decisions/0004-induction-heads.md).
    """
    if config.init == "small_init":
        small_init_(reset)
        small_init_(set_)
    elif config.init == "kaiming":
        _kaiming_(reset, 0.0)
        _kaiming_(set_, 0.0)
    elif config.init == "asymmetric":
        small_init_(reset)
        _kaiming_(set_, 1.0)
    else:
        small_init_(reset)
        if config.degree == 1:
            nn.init.constant_(reset.bias, 1.0)
        _kaiming_(set_, -1.0)
    vector_init_(reset, set_, config.degree)


@torch.no_grad()
def vector_init_(reset: nn.Linear, set_: nn.Linear, degree: int) -> None:
    """Turn any start of the projections to R and s of vector units into one from which they learn.

    Of every two units the first one starts ready to permute: rows and columns of R sum to zero, so that every state has
    a place to come from and one to go to. The second one starts ready to keep: R is lifted by 1 on the diagonal and
    lowered by 1 off it, near the identity. s lies at −1 in both, below what they carry. Scalar units stay as they are.
    """
    if degree == 1:
        return
    for parameter in reset.parameters():
        matrices = parameter.unflatten(0, (-1, degree, degree))
        permute = matrices[::2] - matrices[::2].mean(1, keepdim=True)
        matrices[::2] = permute - permute.mean(2, keepdim=True)
    if reset.bias is not None:
        reset.bias.unflatten(0, (-1, degree, degree))[1::2] += 2 * torch.eye(degree).to(reset.bias) - 1
    if set_.bias is not None:
        nn.init.constant_(set_.bias, -1.0)


def even_start(
    states: int, degree: int, dtype: torch.dtype | None = None, device: torch.device | None = None
) -> Tensor:
    """The states before the first step, [states]: the n states of every unit spread evenly over −1 … 1.

    Equal states have nothing to permute. 0 for scalar units, ±½ for degree 2.
    """
    dtype = dtype or torch.get_default_dtype()
    if degree == 1:
        return torch.zeros(states, dtype=dtype, device=device)
    # made where it is used: a copy from the host would make a GPU wait at every call
    wide = torch.float32 if torch.device(device or "cpu").type == "mps" else torch.float64
    spread = (2 * torch.arange(degree, dtype=wide, device=device) + 1) / degree - 1
    return spread.to(dtype).repeat(states // degree)


def _normal_(linear: nn.Linear, std: float) -> None:
    nn.init.normal_(linear.weight, std=std)
    nn.init.zeros_(linear.bias)


def _kaiming_(linear: nn.Linear, bias: float) -> None:
    nn.init.kaiming_uniform_(linear.weight, a=math.sqrt(5))
    nn.init.constant_(linear.bias, bias)
