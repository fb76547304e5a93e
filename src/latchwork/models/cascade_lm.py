"""A cascade between a token embedding and a head."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from latchwork.models import decoding
from latchwork.models.sampling import check_sampling, sample
from latchwork.models.tokens import check_sizes, check_tokens, embed
from latchwork.nn.cascade import Cascade
from latchwork.nn.config import CascadeConfig
from latchwork.nn.mode import evaluating
from latchwork.state import State


class CascadeLM(nn.Module):
    """Token embedding, `Cascade`, head: a language model, or a classifier of every step.

    Arguments:
        config: sizes and choices.
        vocab_size: number of input tokens V.
        n_outputs: number of output classes with a head of their own; by default the classes are the V tokens, and
            the head is the embedding if `config.tie_embeddings`.
    """

    def __init__(self, config: CascadeConfig, vocab_size: int, n_outputs: int | None = None) -> None:
        super().__init__()
        check_sizes(vocab_size, n_outputs)
        self.config, self.vocab_size = config, vocab_size
        self.n_outputs = vocab_size if n_outputs is None else n_outputs
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.cascade = Cascade(config)
        self.head = nn.Linear(config.d_model, self.n_outputs, bias=False)
        std = math.sqrt(2 / (5 * config.d_model))
        nn.init.normal_(self.embedding.weight, std=std)
        nn.init.normal_(self.head.weight, std=std)
        if n_outputs is None and config.tie_embeddings:
            self.head.weight = self.embedding.weight

    def initial_state(self, batch_size: int) -> State:
        """The state before the first token, for `batch_size` sequences."""
        return self.cascade.initial_state(batch_size)

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        mask: Tensor | None = None,
        reset: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        process_group: Any = None,
    ) -> tuple[Tensor, State]:
        """tokens [B, T] integers -> logits [B, T, n_outputs] and the state; the rest as in `Cascade.forward`."""
        if mask is None and reset is None and cu_seqlens is None and process_group is None:
            stepped = self._step(tokens, state, dropout=True)
            if stepped is not None:
                return stepped
        y, state = self.cascade(self._embed(tokens), state, mask, reset, cu_seqlens, process_group)
        return self.head(y), state

    def _step(self, tokens: Tensor, state: State | None, *, dropout: bool) -> tuple[Tensor, State] | None:
        """One token of one sequence where `latchwork.models.decoding` covers it: a subclass may mean something else."""
        return decoding.step(self, tokens, state, dropout=dropout) if type(self) is CascadeLM else None

    def _embed(self, tokens: Tensor) -> Tensor:
        return embed(self.embedding, tokens, self.vocab_size)

    def generate(
        self,
        prompt: Tensor,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        generator: torch.Generator | None = None,
    ) -> Iterator[Tensor]:
        """Yield one next token [B] after another, without end, in constant memory.

        Arguments:
            prompt: [B, T] tokens to continue, T ≥ 1.
            temperature, top_k, top_p, generator: as in `latchwork.models.sampling.sample`.

        Dropout is off while a token is computed and the training flag of every module is as before in between.

        Raises: ValueError, at once, when the prompt or the settings are none.
        """
        check_sampling(temperature, top_k, top_p)
        if not isinstance(prompt, Tensor) or prompt.ndim != 2 or prompt.shape[1] == 0:
            got = tuple(prompt.shape) if isinstance(prompt, Tensor) else type(prompt).__name__
            raise ValueError(f"prompt must be a tensor [B, T] with at least one token, got {got}")
        check_tokens(prompt, self.vocab_size)
        if self.n_outputs != self.vocab_size:
            raise ValueError(f"a model with n_outputs = {self.n_outputs} classes does not predict its tokens")
        draw = functools.partial(sample, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
        return self._continue(prompt, draw)

    @torch.no_grad()
    def _continue(self, tokens: Tensor, draw: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
        state = None
        while True:
            logits, state = self._predict(tokens, state)
            token = draw(logits)
            yield token
            tokens = token.unsqueeze(1)

    def _predict(self, tokens: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Logits after the last token [B, V], in evaluation mode."""
        stepped = self._step(tokens, state, dropout=False)
        if stepped is not None:
            return stepped[0][:, -1], stepped[1]
        with evaluating(self):
            y, state = self.cascade(self._embed(tokens), state)
            return self.head(y[:, -1]), state
