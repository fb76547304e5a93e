"""How long does one token take, at the beginning and after a long context?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from latchwork.bench.peers import MODEL_PEERS, ModelPeer, lstm_of_size, read, size
from latchwork.bench.rows import Row
from latchwork.bench.timing import attempt, compare
from latchwork.models.cascade_lm import CascadeLM
from latchwork.nn.config import CascadeConfig

_IN_A_ROW = 20  # tokens of one model before the turn of the other, as weights in cache are part of decoding


@dataclass(frozen=True)
class Sizes:
    """Our models by name, the first one also against every other peer; tokens before the late position."""

    models: dict[str, CascadeConfig] = field(
        default_factory=lambda: {"small": CascadeConfig.small(), "medium": CascadeConfig.medium()}
    )
    context: int = 100_000
    vocabulary: int = 50


FULL, QUICK = Sizes(), Sizes(models={"small": CascadeConfig.small()}, context=2_000)


@torch.no_grad()
def bench_decode(sizes: Sizes = FULL, repeats: int = 400) -> Iterator[Row]:
    """Seconds a token, batch 1, at token 0 and after the context: medians of at least `repeats` tokens each."""
    others = tuple(peer for peer in MODEL_PEERS if peer.name != "torch.nn.LSTM")
    for name, config in sizes.models.items():
        model = CascadeLM(config, sizes.vocabulary).eval()
        states = {0: model.initial_state(1), sizes.context: read(model, sizes.context, sizes.vocabulary)}
        yield _constant(name, model, states, repeats)
        lstm = ModelPeer("torch.nn.LSTM", partial(lstm_of_size, size(model), layers=config.n_layers))
        for peer in (lstm, *others):
            yield from _peer(name, model, states, peer, sizes.vocabulary, repeats)
        others = ()


def _constant(name: str, model: nn.Module, states: dict[int, Any], repeats: int) -> Row:
    start, late = states
    ours, theirs = compare(_decoder(model, states[late]), _decoder(model, states[start]), repeats, _IN_A_ROW)
    return Row(what=f"{name} model at token {late:,}", ours=ours, against=f"the same at token {start}", theirs=theirs)


def _peer(
    name: str, model: nn.Module, states: dict[int, Any], peer: ModelPeer, vocabulary: int, repeats: int
) -> Iterator[Row]:
    rival, absent = attempt(lambda: peer.build(vocabulary).eval())
    details = {"ours_parameters": size(model)}
    if rival is not None:
        details["theirs_parameters"] = size(rival)
    for position, state in states.items():
        decoder, note = attempt(partial(_peer_decoder, peer, rival, position, vocabulary)) if rival else (None, absent)
        ours, theirs = compare(_decoder(model, state), decoder, repeats, _IN_A_ROW)
        yield Row(
            what=f"{name} model at token {position:,}",
            shape=(1, 1),
            ours=ours,
            against=peer.name,
            theirs=theirs,
            note=note,
            details=details,
        )


def _peer_decoder(peer: ModelPeer, model: nn.Module, position: int, vocabulary: int) -> Callable[[], object]:
    decoder = _decoder(model, peer.after(model, position, vocabulary) if position else None)
    decoder()  # fails here if at all
    return decoder


def _decoder(model: nn.Module, state: Any) -> Callable[[], object]:
    """A function that reads one token more at every call."""
    token = torch.zeros(1, 1, dtype=torch.long)

    def step() -> object:
        nonlocal state
        logits, state = model(token, state)
        return logits

    return step
