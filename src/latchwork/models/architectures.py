"""Every kind of model that can be trained, by name."""

from __future__ import annotations

from typing import TypeAlias

from torch import nn

from latchwork.models.baselines import BASELINES, Baseline, BaselineLM
from latchwork.models.cascade_lm import CascadeLM
from latchwork.nn.config import CascadeConfig

ModelConfig: TypeAlias = CascadeConfig | Baseline

CASCADE = "cascade"
ARCHITECTURES: dict[str, type[ModelConfig]] = {CASCADE: CascadeConfig, **BASELINES}
"""Configurations by the name of what they configure."""


def architecture(config: ModelConfig) -> str:
    """The name of what a configuration is of."""
    return next(name for name, kind in ARCHITECTURES.items() if type(config) is kind)


def build(config: ModelConfig, vocab_size: int, n_outputs: int | None = None) -> CascadeLM | BaselineLM:
    """A model with fresh weights."""
    kind = CascadeLM if isinstance(config, CascadeConfig) else BaselineLM
    return kind(config, vocab_size, n_outputs)  # type: ignore[arg-type]


def body_size(model: nn.Module) -> int:
    """Number of parameters without embeddings (of tokens and positions) and head, which depend on the vocabulary."""
    outside = {
        id(p)
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) or name.rpartition(".")[2] in ("head", "lm_head")
        for p in module.parameters()
    }
    return sum(p.numel() for p in model.parameters() if id(p) not in outside)
