"""What the scan and the models are measured against.

Every model here is called like `latchwork.CascadeLM`: ``logits, state = model(tokens, state)`` with tokens [B, T] and
logits [B, T, V]. Libraries are imported when a peer is built, and an absent one raises ModuleNotFoundError then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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


class RecurrentLM(nn.Module):
    """Embedding, `torch.nn.LSTM` or `torch.nn.GRU`, head."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], vocab_size: int, width: int, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.cells = kind(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        y, state = self.cells(self.embedding(tokens), state)
        return self.head(y), state


def lstm_of_size(parameters: int, vocab_size: int, layers: int) -> RecurrentLM:
    """The LSTM language model whose number of parameters, embedding and head included, is nearest to `parameters`."""

    def count(width: int) -> int:
        return 2 * vocab_size * width + vocab_size + layers * (8 * width * width + 8 * width)

    width = min(range(4, 4096), key=lambda w: abs(count(w) - parameters))
    return RecurrentLM(nn.LSTM, vocab_size, width, layers)


class MambaLM(nn.Module):
    """Embedding, the Mamba of `mambapy`, RMSNorm, tied head; in evaluation mode it takes one token at a time."""

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        from mambapy.mamba import Mamba, MambaConfig

        config = MambaConfig(d_model=width, n_layers=2)
        self.embedding = nn.Embedding(vocab_size, width)
        self.body = Mamba(config)
        self.norm = nn.RMSNorm(width)
        self.inner, self.memory = config.d_inner, config.d_conv - 1

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        u = self.embedding(tokens)
        if self.training:
            y, after = self.body(u), None
        elif tokens.shape[1] == 1:
            before = state or [(None, u.new_zeros(len(u), self.inner, self.memory)) for _ in self.body.layers]
            last, after = self.body.step(u[:, 0], list(before))
            y = last.unsqueeze(1)
        else:
            raise NotImplementedError("mambapy carries its state one token at a time only")
        return F.linear(self.norm(y), self.embedding.weight), after


class HuggingFaceLM(nn.Module):
    """A causal language model of `transformers`. Its state is its cache, which a call changes in place."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        result = self.model(tokens, cache=state, use_cache=not self.training)
        return result.logits, result.cache


class TransformerLM(HuggingFaceLM):
    """GPT-2's shape; positions begin again where its table of positions ends, so that any context fits."""

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
        super().__init__(GPT2LMHeadModel(config))
        self.config = config

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


def _mamba2(vocab_size: int) -> nn.Module:
    from transformers import Mamba2Config, Mamba2ForCausalLM

    config = Mamba2Config(
        vocab_size=vocab_size,
        hidden_size=90,
        num_hidden_layers=2,
        state_size=64,
        num_heads=9,
        head_dim=20,
        n_groups=1,
        chunk_size=64,
        tie_word_embeddings=True,
    )
    return HuggingFaceLM(Mamba2ForCausalLM(config))


def _xlstm(vocab_size: int) -> nn.Module:
    from transformers import xLSTMConfig, xLSTMForCausalLM

    config = xLSTMConfig(
        vocab_size=vocab_size,
        hidden_size=64,  # the only width near our size: keys and values are rounded up to multiples of 64
        num_hidden_layers=2,
        num_heads=4,
        qk_dim_factor=1.0,
        autocast_kernel_dtype="float32",
    )
    return HuggingFaceLM(xLSTMForCausalLM(config))


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
    ModelPeer("torch.nn.LSTM", lambda vocab_size: RecurrentLM(nn.LSTM, vocab_size, 89)),
    ModelPeer("torch.nn.GRU", lambda vocab_size: RecurrentLM(nn.GRU, vocab_size, 103)),
    ModelPeer("Mamba (mambapy)", lambda vocab_size: MambaLM(vocab_size, 92)),
    ModelPeer("Mamba-2 (transformers)", _mamba2),
    ModelPeer("xLSTM (transformers)", _xlstm),
    ModelPeer(
        "Transformer, GPT-2 (transformers)",
        lambda vocab_size: TransformerLM(vocab_size, 72),
        after=lambda model, context, _: model.filled(context),
    ),
)


def size(model: nn.Module) -> int:
    """Number of parameters."""
    return sum(p.numel() for p in model.parameters())


def body_size(model: nn.Module) -> int:
    """Number of parameters without embeddings (of tokens and positions) and head, which depend on the vocabulary."""
    outside = {
        id(p)
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) or name.rpartition(".")[2] in ("head", "lm_head")
        for p in module.parameters()
    }
    return sum(p.numel() for p in model.parameters() if id(p) not in outside)
