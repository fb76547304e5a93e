"""How weights start (arXiv 2605.06384, appendix on training)."""

from __future__ import annotations

import math

from torch import nn

from latchwork.nn.config import CascadeConfig


def small_init_(linear: nn.Linear) -> None:
    """Normal weights with standard deviation √(2 / (5·fan_in)), zero bias."""
    _normal_(linear, math.sqrt(2 / (5 * linear.in_features)))


def output_init_(linear: nn.Linear, n_layers: int) -> None:
    """For matrices that write to the residual stream: standard deviation 2 / (L·√fan_in), zero bias."""
    _normal_(linear, 2 / (n_layers * math.sqrt(linear.in_features)))


def reset_set_init_(reset: nn.Linear, set_: nn.Linear, config: CascadeConfig) -> None:
    """The projections to r and s. `asymmetric` lifts s above r, so that at first every step writes."""
    if config.init == "small_init":
        small_init_(reset)
        small_init_(set_)
    elif config.init == "kaiming":
        _kaiming_(reset, 0.0)
        _kaiming_(set_, 0.0)
    else:
        small_init_(reset)
        _kaiming_(set_, 1.0)


def _normal_(linear: nn.Linear, std: float) -> None:
    nn.init.normal_(linear.weight, std=std)
    nn.init.zeros_(linear.bias)


def _kaiming_(linear: nn.Linear, bias: float) -> None:
    nn.init.kaiming_uniform_(linear.weight, a=math.sqrt(5))
    nn.init.constant_(linear.bias, bias)
