"""A scan and its way back as one differentiable operator of PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack


def scan_operator(name: str, forward: Callable, backward: Callable, device_types: str | None) -> Callable:
    """Register an implementation with PyTorch as one differentiable operator."""
    inputs = "Tensor r, Tensor s, Tensor state, Tensor x0, Tensor? mask, Tensor? reset"
    operator = torch.library.custom_op(
        f"latchwork::{name}",
        forward,
        mutates_args=(),
        device_types=device_types,
        schema=f"({inputs}) -> (Tensor, Tensor)",
    )
    gradient = torch.library.custom_op(
        f"latchwork::{name}_backward",
        backward,
        mutates_args=(),
        device_types=device_types,
        schema=f"(Tensor grad_x, Tensor grad_last, {inputs}, Tensor x) -> (Tensor, Tensor, Tensor, Tensor)",
    )

    @operator.register_fake
    def _(r, s, state, x0, mask, reset):
        return s.new_empty(s.shape), state.new_empty(state.shape)

    @gradient.register_fake
    def _(grad_x, grad_last, r, s, state, x0, mask, reset, x):
        return r.new_empty(r.shape), s.new_empty(s.shape), state.new_empty(state.shape), state.new_empty(state.shape)

    def save(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[0])

    def differentiate(ctx, grad_x, grad_last):
        return *gradient(grad_x, grad_last, *ctx.saved_tensors), None, None

    def refuse(ctx, *_):
        raise RuntimeError('the scan has no second derivatives; use backend="reference"')

    operator.register_autograd(differentiate, setup_context=save)
    gradient.register_autograd(refuse, setup_context=lambda ctx, inputs, output: None)
    for op in (operator, gradient):
        op.register_vmap(functools.partial(_batched, op))

    # The transforms of `torch.func` do not use the gradients of operators.
    class Scan(torch.autograd.Function):
        @staticmethod
        def forward(*inputs):
            return operator(*inputs)

        setup_context = staticmethod(save)

        @staticmethod
        def backward(ctx, grad_x, grad_last):
            return *ScanBackward.apply(grad_x, grad_last, *ctx.saved_tensors), None, None

        @staticmethod
        def vmap(info, in_dims, *inputs):
            return _batched(Scan.apply, info, in_dims, *inputs)

    class ScanBackward(torch.autograd.Function):
        @staticmethod
        def forward(*inputs):
            return gradient(*inputs)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        backward = staticmethod(refuse)

        @staticmethod
        def vmap(info, in_dims, *inputs):
            return _batched(ScanBackward.apply, info, in_dims, *inputs)

    def scan(*inputs):
        transformed = not torch.compiler.is_compiling() and peek_interpreter_stack() is not None
        return (Scan.apply if transformed else operator)(*inputs)

    return scan


def _batched(op: Callable, info, in_dims: tuple, *inputs: Tensor | None) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Under `torch.vmap` the new dimension joins the batch, with which every input begins."""
    size = info.batch_size

    def front(a: Tensor | None, dim: int | None) -> Tensor | None:
        return None if a is None else a.expand(size, *a.shape) if dim is None else a.movedim(dim, 0)

    moved = [front(a, dim) for a, dim in zip(inputs, in_dims, strict=True)]
    batch = next(a.shape[1] for a in moved if a is not None)
    results = op(*(None if a is None else a.flatten(0, 1) for a in moved))
    return tuple(a.unflatten(0, (size, batch)) for a in results), (0,) * len(results)
