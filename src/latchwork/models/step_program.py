"""What one token through a `CascadeLM` is, written down for the kernel of `latchwork.ops.cpu_step`.

The functions `_layer` … `_units` follow the `forward` of the modules of the same names, without dropout.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.nn.cascade import Cascade
from latchwork.nn.conv import CausalConv
from latchwork.nn.feed_forward import FeedForward
from latchwork.nn.layer import CascadeLayer
from latchwork.nn.units import Units
from latchwork.ops import cpu_step as ops

if TYPE_CHECKING:
    from latchwork.models.cascade_lm import CascadeLM

_ACTIVATIONS = {F.relu: ops.RELU, F.gelu: ops.GELU, F.silu: ops.SILU, torch.tanh: ops.TANH, torch.sigmoid: ops.SIGMOID}
_NORMS: dict[type[nn.Module], tuple[int, float | None]] = {
    nn.LayerNorm: (ops.LAYER_NORM, ops.LAYER_NORM_EPSILON),
    nn.RMSNorm: (ops.RMS_NORM, None),
}
_BYTES = 4  # of an element
_LINE = 16  # elements; scratch vectors start at multiples of it, so that threads share no cache line


class NotCoveredError(Exception):
    """The model is not built of what a program can say."""


class Vector(NamedTuple):
    """A slot of the kernel's table and the number of elements there."""

    slot: int
    size: int


class StepProgram(NamedTuple):
    """A program and the layout of its table.

    The slots are: the embedding of the token, the parameters in the order in which they were given, the logits, two
    states a layer before the step, as many after it, and the scratch vectors.
    """

    program: ops.Program
    embedding: int
    """Which parameter holds the embeddings of all tokens."""
    width: int
    n_outputs: int
    states: list[tuple[int, int]]
    """Shapes, two a layer."""
    scratch: list[int]
    """Where in the scratch memory its vectors start, in elements, and at the end the size of the whole."""

    def run(self, parameters: Sequence[Tensor], token: int, before: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The logits [1, 1, n_outputs] and the states after the token. Nothing is checked here."""
        after = list(map(torch.empty_like, before))
        logits = torch.empty((1, 1, self.n_outputs), dtype=torch.float32)
        scratch = torch.empty(self.scratch[-1], dtype=torch.float32)
        vector = parameters[self.embedding].data_ptr() + token * self.width * _BYTES
        tensors = map(Tensor.data_ptr, chain(parameters, (logits,), before, after))
        first = scratch.data_ptr()
        self.program.run((vector, *tensors, *[first + offset * _BYTES for offset in self.scratch]))
        return logits, after


def write(model: CascadeLM, owners: Sequence[tuple[nn.Module, str]], shapes: Sequence[torch.Size]) -> StepProgram:
    """The program of one step of `model`, whose parameters have these owners and names, and these shapes.

    Raises: NotCoveredError.
    """
    if model.config.degree > 1:
        raise NotCoveredError
    width, states = model.config.d_model, [model.config.d_model, model.config.n_units]
    layers = _expect(_expect(model.cascade, Cascade).layers, nn.ModuleList)
    w = _Writer(width, owners, shapes)
    embedding = w.parameter(_expect(model.embedding, nn.Embedding), "weight", model.vocab_size, width)
    logits = w.vector(model.n_outputs)
    before = [[w.vector(n) for n in states] for _ in layers]
    after = [[w.vector(n) for n in states] for _ in layers]
    u = w.then(ops.COPY, Vector(0, width))
    for layer, old, new in zip(layers, before, after, strict=True):
        w.free_after(u)
        _layer(w, layer, u, old, new)
    w.linear(model.head, w.norm(model.cascade.norm, u), logits)
    scratch = accumulate((-(-n // _LINE) * _LINE for n in w.sizes[u.slot :]), initial=0)
    return StepProgram(
        ops.Program(w.instructions),
        embedding.slot - 1,
        width,
        model.n_outputs,
        [(1, n) for n in states] * len(layers),
        list(scratch),
    )


def _layer(w: _Writer, layer: nn.Module, u: Vector, before: list[Vector], after: list[Vector]) -> None:
    part = _expect(layer, CascadeLayer)
    mixed = _conv(w, part.conv, before[0], w.norm(part.conv_norm, u, after[0]))
    w.write(ops.ADD, mixed, u, mixed)
    w.write(ops.ADD, mixed, mixed, _feed_forward(w, part.ffn, w.norm(part.ffn_norm, mixed)))
    w.write(ops.ADD, u, u, _units(w, part.unit, w.norm(part.unit_norm, mixed), before[1], after[1]))


def _conv(w: _Writer, conv: nn.Module, before: Vector, now: Vector) -> Vector:
    part = _expect(conv, CausalConv)
    if part.gate is not None:
        return w.then(ops.LERP, now, before, w.then(ops.SIGMOID, w.parameter(part, "gate", now.size)))
    return w.linear(part.mix, w.join(before, now))


def _feed_forward(w: _Writer, ffn: nn.Module, x: Vector) -> Vector:
    part = _expect(ffn, FeedForward)
    if part.activation not in _ACTIVATIONS:
        raise NotCoveredError
    hidden = w.then(_ACTIVATIONS[part.activation], w.linear(part.inner, x))
    if part.value is not None:
        hidden = w.then(ops.MULTIPLY, hidden, w.linear(part.value, x))
    return w.linear(part.outer, hidden)


def _units(w: _Writer, unit: nn.Module, u: Vector, before: Vector, after: Vector) -> Vector:
    part = _expect(unit, Units)
    w.write(ops.UPDATE, after, w.linear(part.reset, u), w.linear(part.set, u), before)
    if part.gate is None:
        return w.linear(part.out, after)
    return w.linear(part.out, w.then(ops.MULTIPLY, after, w.then(ops.SIGMOID, w.linear(part.gate, u))))


class _Writer:
    """Instructions, and who has which slot."""

    def __init__(self, width: int, owners: Sequence[tuple[nn.Module, str]], shapes: Sequence[torch.Size]) -> None:
        self.instructions: list[ops.Instruction] = []
        self.sizes = [width, *(shape.numel() for shape in shapes)]
        self._parameters = {
            owner: (i + 1, tuple(shape)) for i, (owner, shape) in enumerate(zip(owners, shapes, strict=True))
        }
        self._next = len(self.sizes)

    def vector(self, size: int) -> Vector:
        """The next free slot."""
        if self._next == len(self.sizes):
            self.sizes.append(0)
        vector = Vector(self._next, size)
        self.sizes[vector.slot] = max(self.sizes[vector.slot], size)
        self._next += 1
        return vector

    def free_after(self, vector: Vector) -> None:
        """The slots after this vector may be used again."""
        self._next = vector.slot + 1

    def parameter(self, owner: nn.Module, name: str, *shape: int) -> Vector:
        slot, actual = self._parameters.get((owner, name), (0, None))
        if actual != shape:
            raise NotCoveredError
        return Vector(slot, self.sizes[slot])

    def write(self, code: int, out: Vector, *operands: Vector) -> Vector:
        """An instruction on vectors of one size."""
        if any(operand.size != out.size for operand in operands):
            raise NotCoveredError
        return self._write(code, 0, out, *operands)

    def then(self, code: int, *operands: Vector) -> Vector:
        """An instruction on vectors of one size with the result in a new slot."""
        return self.write(code, self.vector(operands[0].size), *operands)

    def join(self, x: Vector, y: Vector) -> Vector:
        return self._write(ops.JOIN, x.size, self.vector(x.size + y.size), x, y)

    def linear(self, linear: nn.Module, x: Vector, out: Vector | None = None) -> Vector:
        part = _expect(linear, nn.Linear)
        out = self.vector(part.out_features) if out is None else out
        weight = self.parameter(part, "weight", out.size, x.size)
        if part.bias is None:
            return self._write(ops.PROJECT, x.size, out, x, weight)
        return self._write(ops.LINEAR, x.size, out, x, weight, self.parameter(part, "bias", out.size))

    def norm(self, norm: nn.Module, x: Vector, out: Vector | None = None) -> Vector:
        """Without `out` the result is only read, so without a norm it may be x itself."""
        if type(norm) is nn.Identity:
            return x if out is None else self.write(ops.COPY, out, x)
        part: Any = norm
        if type(norm) not in _NORMS or part.eps != _NORMS[type(norm)][1]:
            raise NotCoveredError
        names = ("weight", "bias") if type(norm) is nn.LayerNorm else ("weight",)
        parameters = [self.parameter(norm, name, x.size) for name in names]
        return self.write(_NORMS[type(norm)][0], self.vector(x.size) if out is None else out, x, *parameters)

    def _write(self, code: int, columns: int, out: Vector, *operands: Vector) -> Vector:
        x, y, z = (operand.slot for operand in (*operands, out, out)[:3])  # what an instruction lacks is never read
        self.instructions.append(ops.Instruction(code, out.size, columns, out.slot, x, y, z))
        return out


def _expect(part: Any, kind: type) -> Any:
    if type(part) is not kind:
        raise NotCoveredError
    return part
