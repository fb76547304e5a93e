"""mLSTM and sLSTM, the two blocks of `xlstm`, each alone: xLSTM[1:0] and xLSTM[0:1].

`xlstm` is under the Apache License 2.0, but `mlstm_kernels`, which comes with it and which the mLSTM calls, under the
NXAI Community License (attribution, a commercial threshold). So they are an extra of their own.

Source: Beck et al., xLSTM: extended long short-term memory, arXiv 2405.04517.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from latchwork.models.baselines.base import Baseline, Body, check_heads


@dataclass(frozen=True)
class MLSTMConfig(Baseline):
    """Sizes of mLSTM."""

    extra: ClassVar[str] = "xlstm"

    d_model: int = 96
    n_heads: int = 4
    """Memories of a layer."""
    chunk: int = 64
    """Steps that the library computes as one matrix product."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads("d_model", self.d_model, self.n_heads)

    def body(self) -> Body:
        library, kernels = self.library("xlstm"), self.library("mlstm_kernels.torch.backend_module")
        config = library.xLSTMBlockStackConfig(
            mlstm_block=library.mLSTMBlockConfig(mlstm=library.mLSTMLayerConfig(num_heads=self.n_heads)),
            context_length=1,  # of a mask that is not used
            num_blocks=self.n_layers,
            embedding_dim=self.d_model,
        )
        kernel = kernels.mLSTMBackendConfig(
            chunkwise_kernel="chunkwise--native_autograd",
            sequence_kernel="native_sequence__native",
            step_kernel="native",
            chunk_size=self.chunk,
            mode="inference",  # the mode that returns the state; it has gradients too
            autocast_kernel_dtype="float32",
        )
        return _MLSTM(library.xLSTMBlockStack(config), kernels.mLSTMBackend(kernel))


@dataclass(frozen=True)
class SLSTMConfig(Baseline):
    """Sizes of sLSTM."""

    extra: ClassVar[str] = "xlstm"

    d_model: int = 100
    n_heads: int = 4
    """Groups of units that read each other."""
    hidden: int = 140
    """Hidden width of the feed-forward part."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads("d_model", self.d_model, self.n_heads)

    def body(self) -> Body:
        library = self.library("xlstm")
        cell = library.sLSTMLayerConfig(num_heads=self.n_heads, backend="vanilla", dtype="float32")
        ffn = library.FeedForwardConfig(proj_factor=self.hidden / self.d_model, round_proj_up_to_multiple_of=1)
        config = library.xLSTMBlockStackConfig(
            slstm_block=library.sLSTMBlockConfig(slstm=cell, feedforward=ffn),
            num_blocks=self.n_layers,
            embedding_dim=self.d_model,
        )
        return _SLSTM(library.xLSTMBlockStack(config))


class _Stack(Body):
    """Blocks one after another, each with the state of its own."""

    def __init__(self, stack: Any) -> None:
        super().__init__()
        self.blocks, self.norm = stack.blocks, stack.post_blocks_norm

    def forward(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        after = []
        for i, block in enumerate(self.blocks):
            y, carried = self.mix(block.xlstm, block.xlstm_norm(u), None if state is None else state[i])
            u = u + y
            if block.ffn is not None:
                u = u + block.ffn(block.ffn_norm(u))
            after.append(carried)
        return self.norm(u), tuple(after)

    def mix(self, layer: Any, u: Tensor, state: Any) -> tuple[Tensor, Any]:
        """What one layer adds, and its state."""
        raise NotImplementedError


class _MLSTM(_Stack):
    """State: four tensors a layer, the last inputs of the convolution, then matrix [B, heads, d, d], normalizer
    [B, heads, d] and stabilizer [B, heads, 1] of the cells. Chunks equal one call within 1e-4.

    The library's own cell is quadratic in T and carries its state token by token only; the chunkwise kernel of
    `mlstm_kernels` takes its place.
    """

    def __init__(self, stack: Any, kernel: nn.Module) -> None:
        super().__init__(stack)
        self.kernel = kernel

    def mix(self, layer: Any, u: Tensor, state: Any) -> tuple[Tensor, Any]:
        """What `xlstm.mLSTMLayer` computes, from a state."""
        x, z = layer.proj_up(u).chunk(2, dim=-1)
        inputs, *memory = [None] * 4 if state is None else [part.clone() for part in state]
        conv, inputs = _convolve(layer, x, inputs)
        parts = layer.q_proj(conv), layer.k_proj(conv), layer.v_proj(x)
        cell = layer.mlstm_cell
        gates = torch.cat(parts, dim=-1)
        heads = cell.config.num_heads
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        i, f = (gate(gates).transpose(1, 2) for gate in (cell.igate, cell.fgate))
        h, memory = self.kernel(q, k, v, i, f, *memory)
        y = cell.outnorm(h).transpose(1, 2).flatten(2) + layer.learnable_skip * conv
        return layer.proj_down(y * layer.ogate_act_fn(z)), (inputs, *memory)


class _SLSTM(_Stack):
    """State: a pair a layer, the last inputs of the convolution and the states of the cells [B, 4, d_model]. Chunks
    equal one call within 1e-4.

    The library writes every step into one tensor of all steps, which autograd copies as a whole at every step of the
    way back; here the steps of its cell are stacked.
    """

    def mix(self, layer: Any, u: Tensor, state: Any) -> tuple[Tensor, Any]:
        """What `xlstm.sLSTMLayer` computes, from a state."""
        inputs, cells = (None, u.new_zeros(len(u), 4, u.shape[-1])) if state is None else state
        conv, inputs = _convolve(layer, u, inputs)
        # the library calls the gates for input and forgetting by each other's names
        gates = torch.cat([layer.fgate(conv), layer.igate(conv), layer.zgate(u), layer.ogate(u)], dim=-1)
        y, cells = _run(layer.slstm_cell, gates, cells)
        y = y.unflatten(-1, (layer.config.num_heads, -1)).transpose(1, 2)
        return layer.group_norm(y).transpose(1, 2).flatten(2), (inputs, cells)


def _run(cell: Any, gates: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """gates [B, T, 4·d_model] and state [B, 4, d_model] -> outputs [B, T, d_model] and the state after them."""
    recurrent = cell._recurrent_kernel_.transpose(1, 2)  # [heads, d, 4·d]
    states, outputs = state.transpose(0, 1), []
    for step in gates.unbind(dim=1):
        heads = states[0].unflatten(-1, (len(recurrent), -1)).transpose(0, 1) @ recurrent  # [heads, B, 4·d]
        read = heads.unflatten(-1, (4, -1)).permute(1, 2, 0, 3).flatten(1)
        states, _ = cell.pointwise(step, read, cell._bias_, states, constants=cell.config.constants)
        outputs.append(states[0])
    return torch.stack(outputs, dim=1), states.transpose(0, 1)


def _convolve(layer: Any, x: Tensor, inputs: Tensor | None) -> tuple[Tensor, Tensor]:
    """Convolution and activation of a layer, and the last inputs."""
    y, inputs = layer.conv1d(x, _no_inputs(layer, x) if inputs is None else inputs, return_last_state=True)
    return layer.conv_act_fn(y), inputs


def _no_inputs(layer: Any, x: Tensor) -> Tensor:
    return x.new_zeros(len(x), layer.conv1d.pad, x.shape[-1])
