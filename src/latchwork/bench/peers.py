"""What the scan and the models are measured against.

Every model here is called like `latchwork.CascadeLM`: ``logits, state = model(tokens, state)`` with tokens [B, T] and
logits [B, T, V]. Libraries are imported when a peer is built, and an absent one raises ModuleNotFoundError then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from latchwork.models.baselines import BaselineLM, GRUConfig, LSTMConfig, Mamba2Config, MambaConfig, XLSTMLargeConfig
from latchwork.ops.scan import minmax_scan

ScanPeer = Callable[[Tensor, Tensor], Tensor]


def hillis_steele(r: Tensor, s: Tensor) -> Tensor:
    """The scan as log₂ T levels of tensor operations: what one gets from autograd without a kernel.

    Arguments: r, s [B, T, D]. Returns: x [B, T, D] from a state of zeros.
    Source: Hillis and Steele, Data parallel algorithms, CACM 1986.
    """
    shift = 1
    while shift < r.shape[1]:
        pad = r.new_full((r.shape[0], shift, r.shape[2]), torch.inf)
        earlier_r = torch.cat([pad, r[:, :-shift]], dim=1)
        earlier_s = torch.cat([-pad, s[:, :-shift]], dim=1)
        s = torch.maximum(torch.minimum(r, earlier_s), s)
        r = torch.minimum(r, earlier_r)
        shift *= 2
    return torch.maximum(torch.minimum(r, torch.zeros_like(r[:, :1])), s)


def associative_scan(r: Tensor, s: Tensor) -> Tensor:
    """The same through PyTorch's own prefix scan, which runs eagerly on a CPU with its "generic" combination."""
    from torch._higher_order_ops.associative_scan import associative_scan as scan

    def compose(first: tuple[Tensor, Tensor], then: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return torch.minimum(then[0], first[0]), torch.maximum(torch.minimum(then[0], first[1]), then[1])

    r, s = scan(compose, (r, s), dim=1, combine_mode="generic")
    return torch.maximum(torch.minimum(r, torch.zeros_like(r[:, :1])), s)


def loop(r: Tensor, s: Tensor) -> Tensor:
    """The same as a loop over time in Python."""
    return minmax_scan(r, s, backend="reference")[0]


SCAN_PEERS: dict[str, ScanPeer] = {
    "Hillis–Steele": hillis_steele,
    "torch associative_scan": associative_scan,
    "loop in Python": loop,
}


def lstm_of_size(parameters: int, vocab_size: int, layers: int) -> BaselineLM:
    """The LSTM language model whose number of parameters, embedding and head included, is nearest to `parameters`."""

    def count(width: int) -> int:
        return vocab_size * width + layers * (8 * width * width + 8 * width)

    width = min(range(4, 4096), key=lambda w: abs(count(w) - parameters))
    return BaselineLM(LSTMConfig(width, layers), vocab_size)


class TransformerLM(nn.Module):
    """GPT-2's shape with a cache of the whole context, which a call changes in place.

    Positions begin again where its table of positions ends, so that any context fits.
    """

    def __init__(self, vocab_size: int, width: int, positions: int = 512) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            vocab_size=vocab_size,
            n_embd=width,
            n_layer=2,
            n_head=4,
            n_positions=positions,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
        )
        super().__init__()
        self.model, self.config = GPT2LMHeadModel(config), config

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        past = 0 if state is None else state.get_seq_length()
        positions = torch.arange(past, past + tokens.shape[1]).remainder(self.config.n_positions).unsqueeze(0)
        result = self.model(tokens, cache=state, use_cache=not self.training, position_ids=positions)
        return result.logits, result.cache

    def filled(self, context: int) -> Any:
        """A cache as after `context` tokens, of random keys and values: computing them takes quadratic time."""
        from transformers import DynamicCache

        cache = DynamicCache(config=self.config)
        heads, width = self.config.n_head, self.config.n_embd // self.config.n_head
        for layer in range(self.config.n_layer):
            cache.update(*torch.randn(2, 1, heads, context, width), layer)
        return cache


@torch.no_grad()
def read(model: nn.Module, context: int, vocab_size: int, chunk: int = 1024) -> Any:
    """The state of a model after `context` random tokens [1, T], read in chunks."""
    state = None
    for start in range(0, context, chunk):
        tokens = torch.randint(0, vocab_size, (1, min(chunk, context - start)))
        state = model(tokens, state)[1]
    return state


class ModelPeer(NamedTuple):
    """A language model with two layers, its body as large as that of `CascadeConfig.small()` where that can be."""

    name: str
    build: Callable[[int], nn.Module]
    """From the size of the vocabulary."""
    after: Callable[[Any, int, int], Any] = read
    """The state after a context, from model, length of the context and size of the vocabulary."""


MODEL_PEERS = (
    ModelPeer("torch.nn.LSTM", partial(BaselineLM, LSTMConfig())),
    ModelPeer("torch.nn.GRU", partial(BaselineLM, GRUConfig())),
    ModelPeer("Mamba (mambapy)", partial(BaselineLM, MambaConfig())),
    ModelPeer("Mamba-2 (transformers)", partial(BaselineLM, Mamba2Config())),
    ModelPeer("xLSTM (transformers)", partial(BaselineLM, XLSTMLargeConfig())),
    ModelPeer(
        "Transformer, GPT-2 (transformers)",
        lambda vocab_size: TransformerLM(vocab_size, 72),
        after=lambda model, context, _: model.filled(context),
    ),
)


def size(model: nn.Module) -> int:
    """Number of parameters."""
    return sum(p.numel() for p in model.parameters())
