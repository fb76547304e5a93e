"""The configuration of a cascade; the defaults are the synthetic model of arXiv 2605.06384, §5."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from latchwork.fields import settle

Conv = Literal["basic", "gated"]
Init = Literal["small_init", "kaiming", "asymmetric", "keep"]
Norm = Literal["layernorm", "rmsnorm", "none"]
FeedForward = Literal["gated", "basic"]
Activation = Literal["relu", "gelu", "silu", "tanh", "sigmoid"]


@dataclasses.dataclass(frozen=True)
class CascadeConfig:
    """Sizes and choices of a cascade."""

    d_model: int = 90
    """Width of the residual stream."""
    n_layers: int = 2
    """Number of layers, each with convolution, feed-forward and units."""
    n_units: int = 40
    """Recurrent units in a layer."""
    degree: int = 1
    """States of a unit: 1 for scalar units, n for vector units, which can permute n values."""
    output_gate: bool = True
    """Multiply the states by a sigmoid of the input before they leave the unit."""
    conv: Conv = "basic"
    """How the previous and this input are mixed: one matrix over both, or a learned gate a channel."""
    init: Init = "keep"
    """How the reset and set projections start: small normal, Kaiming uniform, set above reset (nearly every step sets
    the state), or reset above set (nearly every step keeps it). Vector units start ready to permute or to keep, with a
    low set, in any case."""
    norm: Norm = "layernorm"
    """Normalisation before each part of a layer and at the end."""
    ffn: FeedForward = "gated"
    """Feed-forward with a multiplicative gate, or without."""
    activation: Activation = "relu"
    """Of the feed-forward part; with the gate, relu makes it a ReGLU."""
    expansion: float = 1.3
    """Hidden width of the feed-forward part over d_model, rounded up to an even number."""
    dropout: float = 0.1
    """Probability of dropping an output of the feed-forward part while training; the first layer drops none."""
    learned_x0: bool = False
    """Learn the states and inputs before the first step instead of starting from zeros (vector units: evenly apart)."""
    tie_embeddings: bool = True
    """Use the token embedding as the output matrix (language models without n_outputs)."""

    def __post_init__(self) -> None:
        settle(self)
        for name in ("d_model", "n_layers", "n_units", "degree"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be a positive integer, got {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout!r}")
        if not (math.isfinite(self.expansion) and self.expansion > 0):
            raise ValueError(f"expansion must be a positive number, got {self.expansion!r}")

    @property
    def n_states(self) -> int:
        """States of all units of a layer."""
        return self.n_units * self.degree

    @property
    def hidden(self) -> int:
        """Hidden width of the feed-forward part."""
        return 2 * math.ceil(round(self.expansion * self.d_model, 6) / 2)

    @classmethod
    def small(cls, **changes: Any) -> CascadeConfig:
        """The paper's synthetic model: 127,432 parameters without embedding and head."""
        return cls(**changes)

    @classmethod
    def medium(cls, **changes: Any) -> CascadeConfig:
        """512 channels, 8 layers of 512 units."""
        return cls(**{"d_model": 512, "n_layers": 8, "n_units": 512, **changes})

    @classmethod
    def paper_lm(cls, **changes: Any) -> CascadeConfig:
        """The paper's language model: 112,465,992 parameters with the GPT-2 vocabulary of 50,257."""
        sizes = {"d_model": 728, "n_layers": 12, "n_units": 1456}
        return cls(**{**sizes, "conv": "gated", "init": "asymmetric", **changes})

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> CascadeConfig:
        """From the result of `to_dict`; unknown fields raise."""
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(fields) - known):
            raise ValueError(f"unknown fields of CascadeConfig: {', '.join(unknown)}")
        return cls(**fields)
