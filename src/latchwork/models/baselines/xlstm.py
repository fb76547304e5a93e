"""mLSTM and sLSTM, the two blocks of `xlstm`: xLSTM[1:0], xLSTM[0:1], and xLSTM[1:1] with both in turn.

`xlstm` is under the Apache License 2.0, but `mlstm_kernels`, which comes with it and which the mLSTM calls, under the
NXAI Community License (attribution, a commercial threshold). So they are an extra of their own.

Source: Beck et al., xLSTM: extended long short-term memory, arXiv 2405.04517.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

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
        return _body(self, {"mlstm_block": _mlstm_block(self)})


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
        return _body(self, {"slstm_block": _slstm_block(self)})


@dataclass(frozen=True)
class XLSTMConfig(Baseline):
    """Sizes of xLSTM[1:1]: mLSTM in the first layer, sLSTM in the second one, and so on in turn."""

    extra: ClassVar[str] = "xlstm"

    d_model: int = 96
    n_heads: int = 4
    """Memories of an mLSTM, and groups of units of an sLSTM."""
    hidden: int = 152
    """Hidden width of the feed-forward part, which comes after an sLSTM."""
    chunk: int = 64
    """Steps of an mLSTM that the library computes as one matrix product."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads("d_model", self.d_model, self.n_heads)

    def body(self) -> Body:
        blocks = {"mlstm_block": _mlstm_block(self), "slstm_block": _slstm_block(self)}
        return _body(self, {**blocks, "slstm_at": list(range(1, self.n_layers, 2))})


def _mlstm_block(config: MLSTMConfig | XLSTMConfig) -> Any:
    library = config.library("xlstm")
    return library.mLSTMBlockConfig(mlstm=library.mLSTMLayerConfig(num_heads=config.n_heads))


def _slstm_block(config: SLSTMConfig | XLSTMConfig) -> Any:
    library = config.library("xlstm")
    cell = library.sLSTMLayerConfig(num_heads=config.n_heads, backend="vanilla", dtype="float32")
    ffn = library.FeedForwardConfig(proj_factor=config.hidden / config.d_model, round_proj_up_to_multiple_of=1)
    return library.sLSTMBlockConfig(slstm=cell, feedforward=ffn)


def _body(config: MLSTMConfig | SLSTMConfig | XLSTMConfig, blocks: dict[str, Any]) -> Body:
    library, kernel = config.library("xlstm"), None
    stack = library.xLSTMBlockStackConfig(
        **blocks,
        context_length=1,  # of a mask that is not used
        num_blocks=config.n_layers,
        embedding_dim=config.d_model,
    )
    if not isinstance(config, SLSTMConfig):
        kernels = config.library("mlstm_kernels.torch.backend_module")
        kernel = kernels.mLSTMBackend(
            kernels.mLSTMBackendConfig(
                chunkwise_kernel="chunkwise--native_autograd",
                sequence_kernel="native_sequence__native",
                step_kernel="native",
                chunk_size=config.chunk,
                mode="inference",  # the mode that returns the state; it has gradients too
                autocast_kernel_dtype="float32",
            )
        )
    return _Stack(library.xLSTMBlockStack(stack), kernel)


class _Stack(Body):
    """Blocks one after another, each with the state of its own; `kernel` computes the cells of mLSTMs.

    State: a tuple a layer. Of an mLSTM four tensors, the last inputs of the convolution, then matrix [B, heads, d, d],
    normalizer [B, heads, d] and stabilizer [B, heads, 1] of the cells; of an sLSTM two, the last inputs of the
    convolution and the states of the cells [B, 4, d_model]. Chunks equal one call within 1e-4.
    """

    def __init__(self, stack: Any, kernel: nn.Module | None) -> None:
        super().__init__()
        self.blocks, self.norm, self.kernel = stack.blocks, stack.post_blocks_norm, kernel

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
        return self.mlstm(layer, u, state) if hasattr(layer, "mlstm_cell") else self.slstm(layer, u, state)

    def mlstm(self, layer: Any, u: Tensor, state: Any) -> tuple[Tensor, Any]:
        """What `xlstm.mLSTMLayer` computes, from a state.

        The library's own cell is quadratic in T and carries its state token by token only; the chunkwise kernel of
        `mlstm_kernels` takes its place.
        """
        x, z = layer.proj_up(u).chunk(2, dim=-1)
        inputs, *memory = [None] * 4 if state is None else [part.clone() for part in state]
        conv, inputs = _convolve(layer, x, inputs)
        parts = layer.q_proj(conv), layer.k_proj(conv), layer.v_proj(x)
        cell = layer.mlstm_cell
        gates = torch.cat(parts, dim=-1)
        heads = cell.config.num_heads
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        i, f = (gate(gates).transpose(1, 2) for gate in (cell.igate, cell.fgate))
        h, memory = cast(nn.Module, self.kernel)(q, k, v, i, f, *memory)
        y = cell.outnorm(h).transpose(1, 2).flatten(2) + layer.learnable_skip * conv
        return layer.proj_down(y * layer.ogate_act_fn(z)), (inputs, *memory)

    def slstm(self, layer: Any, u: Tensor, state: Any) -> tuple[Tensor, Any]:
        """What `xlstm.sLSTMLayer` computes, from a state.

        The library writes every step into one tensor of all steps, which autograd copies as a whole at every step of
        the way back; here the steps of its cell are stacked.
        """
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
