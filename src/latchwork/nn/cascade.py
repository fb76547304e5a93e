"""The cascade: layers of units, each reading the ones below."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from latchwork.nn.config import CascadeConfig
from latchwork.nn.layer import CascadeLayer, make_norm
from latchwork.ops.arguments import check_cu_seqlens, check_flags, check_like
from latchwork.ops.ranks import check_group
from latchwork.state import State


class Cascade(nn.Module):
    """Layers of MinMax units and a final norm, from sequences of vectors to sequences of vectors.

    Running a sequence whole, in chunks with the state carried, or step by step gives the same result in evaluation
    mode, up to the rounding of the matrix products around the scan. To train on chunks, cut the graph between them with
    `latchwork.state.detach(state)`.
    Source: arXiv 2605.06384, §4 and appendix on the architecture.
    """

    def __init__(self, config: CascadeConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(CascadeLayer(config, i) for i in range(config.n_layers))
        self.norm = make_norm(config)

    def initial_state(self, batch_size: int) -> State:
        """The state before the first step, for `batch_size` sequences."""
        like = next(self.parameters()).new_empty(batch_size, 0, self.config.d_model)
        return tuple(layer.start(like) for layer in self.layers)  # type: ignore[operator]

    def forward(
        self,
        u: Tensor,
        state: State | None = None,
        mask: Tensor | None = None,
        reset: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        process_group: Any = None,
    ) -> tuple[Tensor, State]:
        """Run the cascade.

        Arguments:
            u: [B, T, d_model] inputs.
            state: from an earlier call; zeros (or the learned start) by default.
            mask: [B, T] bool; a step with False (padding) leaves the state as it is, and y there means nothing.
            reset: [B, T] bool; at True everything before this step is forgotten.
            cu_seqlens: [N + 1] boundaries of N documents packed in one row (B = 1).
            process_group: over which the time of every sequence is split, in the order of ranks: u, mask and reset hold
                this rank's steps, the state is the same on all ranks (see `latchwork.minmax_scan`).

        Returns:
            y [B, T, d_model], and the state after the last step (of every document with `cu_seqlens`, where a state
            that is passed in is the one of the first document; with `process_group` after the steps of all ranks): a
            tuple with one `latchwork.state.LayerState` a layer.

        Raises:
            TypeError, ValueError: shapes, dtypes or states that do not fit.
        """
        self._check(u, state)
        if process_group is not None:
            check_group(process_group)
            if cu_seqlens is not None:
                raise ValueError("cu_seqlens packs documents in one process; with process_group use reset")
        mask = None if mask is None else check_flags(mask, "mask", u)
        reset = None if reset is None else check_flags(reset, "reset", u)
        if mask is not None:  # what stands at padding must not reach anything, not even as a NaN in a gradient
            u = torch.where(mask.unsqueeze(-1), u, 0)
        documents = None if cu_seqlens is None else check_cu_seqlens(cu_seqlens, u)
        reset = reset if documents is None else documents.resets(reset)
        states = []
        for i, layer in enumerate(self.layers):
            u, after = layer(u, None if state is None else state[i], mask, reset, documents, process_group)
            states.append(after)
        return self.norm(u), tuple(states)

    def _check(self, u: Tensor, state: State | None) -> None:
        if not isinstance(u, Tensor) or u.ndim != 3 or u.shape[-1] != self.config.d_model:
            got = tuple(u.shape) if isinstance(u, Tensor) else type(u).__name__
            raise ValueError(f"inputs must be [B, T, d_model = {self.config.d_model}], got {got}")
        like = next(self.parameters())
        check_like(u, "inputs", like)
        if state is None:
            return
        full = torch.promote_types(like.dtype, torch.float32)
        for a in (part for layer in state for part in layer):
            if not isinstance(a, Tensor):
                raise TypeError(f"the state must consist of tensors, got {type(a).__name__}")
            if a.device != like.device or torch.promote_types(a.dtype, full) != full:
                raise TypeError(f"the state must be {full} on {like.device}, got {a.dtype} on {a.device}")
        wanted = [(u.shape[0], self.config.d_model), (u.shape[0], self.config.n_states)]
        if len(state) != len(self.layers):
            raise ValueError(f"the state has {len(state)} layers, the model has {len(self.layers)}")
        for i, layer in enumerate(state):
            if len(layer) != 2 or [tuple(a.shape) for a in layer] != wanted:
                raise ValueError(
                    f"the state of layer {i} must be tensors of {wanted[0]} and {wanted[1]} "
                    f"for a batch of {u.shape[0]}, got {[tuple(a.shape) for a in layer]}"
                )
