"""Weights in shards: every process keeps a part of each (FSDP2), and gathers a layer when it is its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from latchwork.nn.layer import CascadeLayer


def shard(model: nn.Module) -> None:
    """Split the weights of a model over all processes, in place; layers of a cascade are gathered one at a time."""
    from torch.distributed.fsdp import fully_shard

    for module in model.modules():
        if isinstance(module, CascadeLayer):
            fully_shard(module)
    fully_shard(model)


def whole(value: Tensor) -> Tensor:
    """A tensor in one piece, on every process; all of them have to call."""
    value = value.detach()
    return cast("Any", value).full_tensor() if hasattr(value, "full_tensor") else value


def whole_model(model: nn.Module, build: Callable[[], nn.Module]) -> nn.Module:
    """A copy in one piece on the CPU, from `build` and the weights of `model`; all processes have to call."""
    with torch.random.fork_rng(devices=[]):  # what is drawn for its first weights is not missed later
        fresh = build()
    with torch.no_grad():
        for kind in (nn.Module.parameters, nn.Module.buffers):
            for ours, theirs in zip(kind(fresh), kind(model), strict=True):
                ours.copy_(whole(theirs))
    return fresh


def split_like(value: Tensor, like: Tensor) -> Tensor:
    """A tensor that every process has, in shards as those of `like`."""
    if not hasattr(like, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, cast("Any", like).device_mesh, cast("Any", like).placements)
