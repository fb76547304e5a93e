"""What all baselines share: a configuration that can build a body, and the model around the body."""

from __future__ import annotations

import dataclasses
import importlib
import math
from typing import Any, ClassVar

from torch import Tensor, nn

from latchwork.fields import settle
from latchwork.models.tokens import check_sizes, embed


@dataclasses.dataclass(frozen=True)
class Baseline:
    """Sizes of a baseline; a subclass for every family."""

    extra: ClassVar[str] = "baselines"
    """What to install for its library."""

    d_model: int
    """Width of the embedding and of what goes from layer to layer."""
    n_layers: int = 2
    """Number of layers."""

    def __post_init__(self) -> None:
        settle(self)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise ValueError(f"{field.name} must be a positive integer, got {value}")

    def body(self) -> Body:
        """A body with fresh weights. Raises: ModuleNotFoundError with what to install."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return dataclasses.asdict(self)

    def library(self, name: str) -> Any:
        """The module of a library. Raises: ModuleNotFoundError with what to install."""
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            absent = (error.name or name).partition(".")[0]
            raise ModuleNotFoundError(
                f"{absent} is not installed: pip install 'latchwork[{self.extra}]'", name=absent
            ) from None


def check_heads(what: str, width: int, n_heads: int) -> None:
    """Refuse a width that heads cannot share."""
    if width % n_heads:
        raise ValueError(f"{what} must be a multiple of n_heads = {n_heads}, got {width}")


class Body(nn.Module):
    """What stands between embedding and head."""

    def forward(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """u [B, T, d_model] -> the same shape, and the state after it: nested tuples of tensors, the batch first."""
        raise NotImplementedError


class BaselineLM(nn.Module):
    """Token embedding, the body of a baseline, head; called like `latchwork.CascadeLM`.

    Arguments:
        config: family and sizes.
        vocab_size: number of input tokens V.
        n_outputs: number of output classes with a head of their own; by default the classes are the V tokens, and the
            head is the embedding.

    Embedding and head start as those of `CascadeLM`, the body as its library has it.

    Raises: ModuleNotFoundError with what to install where the library is absent.
    """

    def __init__(self, config: Baseline, vocab_size: int, n_outputs: int | None = None) -> None:
        super().__init__()
        check_sizes(vocab_size, n_outputs)
        self.config, self.vocab_size = config, vocab_size
        self.n_outputs = vocab_size if n_outputs is None else n_outputs
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.body = config.body()
        self.head = nn.Linear(config.d_model, self.n_outputs, bias=False)
        std = math.sqrt(2 / (5 * config.d_model))
        nn.init.normal_(self.embedding.weight, std=std)
        nn.init.normal_(self.head.weight, std=std)
        if n_outputs is None:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """tokens [B, T] integers -> logits [B, T, n_outputs] and the state after them, which no later call changes."""
        y, state = self.body(embed(self.embedding, tokens, self.vocab_size), state)
        return self.head(y), state
