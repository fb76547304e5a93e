"""How fast does a whole model train, against others with a body of the same size?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.bench.peers import MODEL_PEERS, ModelPeer
from latchwork.bench.rows import Row
from latchwork.bench.timing import attempt, compare
from latchwork.models.architectures import body_size
from latchwork.models.cascade_lm import CascadeLM
from latchwork.nn.config import CascadeConfig


@dataclass(frozen=True)
class Sizes:
    batch: int = 8
    length: int = 512
    vocabulary: int = 50


FULL, QUICK = Sizes(), Sizes(batch=2, length=16)


def bench_step(sizes: Sizes = FULL, repeats: int = 40) -> Iterator[Row]:
    """Seconds a token of training (forward, backward and Adam step) of the small model, against every peer.

    No model drops out anything, so that all do the same kind of work.
    """
    tokens = torch.randint(0, sizes.vocabulary, (sizes.batch, sizes.length))
    cascade = CascadeLM(CascadeConfig.small(dropout=0.0), sizes.vocabulary)
    for peer in MODEL_PEERS:
        yield _row(cascade, peer, tokens, repeats, sizes.vocabulary)


def _row(cascade: CascadeLM, peer: ModelPeer, tokens: Tensor, repeats: int, vocabulary: int) -> Row:
    model, note = attempt(lambda: _tried(peer.build(vocabulary), tokens))
    details = {"ours_body_parameters": body_size(cascade)}
    if model is not None:
        details["theirs_body_parameters"] = body_size(model)
    ours, theirs = compare(_step(cascade, tokens), None if model is None else _step(model, tokens), repeats)
    return Row(
        what="training step",
        shape=tuple(tokens.shape),
        unit="s/token",
        ours=ours / tokens.numel(),
        against=peer.name,
        theirs=None if theirs is None else theirs / tokens.numel(),
        note=note,
        details=details,
    )


def _tried(model: nn.Module, tokens: Tensor) -> nn.Module:
    _step(model, tokens)()
    return model


def _step(model: nn.Module, tokens: Tensor) -> Callable[[], None]:
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(tokens)[0].flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    return step
