"""One token of one sequence on a CPU, without PyTorch's overhead.

The modules of a `CascadeLM` say what a step is; for the usual case the same is written down as a program for the kernel
of `latchwork.ops.cpu_step`, which does a token in one call. A program knows sizes and choices but no weights: every
call looks up which tensors the modules hold now, of which shape and where. What a program does not cover (other
modules, hooks, other dtypes, gradients, tracing …) is left to the modules, and so are the errors.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_module

from latchwork.nn.cascade import Cascade
from latchwork.nn.conv import CausalConv
from latchwork.nn.feed_forward import FeedForward
from latchwork.nn.layer import CascadeLayer
from latchwork.nn.units import Units
from latchwork.state import LayerState, State

if TYPE_CHECKING:
    from latchwork.models.cascade_lm import CascadeLM
    from latchwork.models.step_program import StepProgram

_KINDS = (
    *(Cascade, CascadeLayer, CausalConv, FeedForward, Units),
    *(nn.Dropout, nn.Embedding, nn.Identity, nn.LayerNorm, nn.Linear, nn.ModuleList, nn.RMSNorm),
)
_FORWARD = {kind: kind.forward for kind in _KINDS}  # as written: tools that watch or change models replace it
_DEPTH = 5  # of modules below the model, as in cascade.layers.0.unit.reset
_CHOICES = (
    "activation",
    "degree",
    "eps",
    "gate",
    "normalized_shape",
    "value",
)  # attributes, beside parameters and modules, that a step depends on
_GLOBAL_HOOKS = (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks)

_dtype, _layout, _is_cpu = attrgetter("dtype"), attrgetter("layout"), attrgetter("is_cpu")


def step(model: CascadeLM, tokens: Tensor, state: State | None, *, dropout: bool) -> tuple[Tensor, State] | None:
    """The next step of `model`, or None where it is left to the modules.

    Arguments:
        tokens: [1, 1].
        state: from an earlier call, or None.
        dropout: whether a dropout in training mode acts; otherwise this is a step of evaluation mode.

    Returns: logits [1, 1, n_outputs] and the state after the token.
    """
    if model.config.degree > 1 or torch.compiler.is_compiling() or _is_watched():
        return None
    if type(tokens) is not Tensor or tokens.shape != (1, 1) or tokens.dtype != torch.int64 or not tokens.is_cpu:
        return None
    parts = _look(model)
    if parts is None or not _are_plain(parts.tensors):
        return None
    plan = _plans.get(model)
    if plan is None or not plan.fits(parts):
        plan = _plans[model] = _Plan(model, parts)
    if dropout and plan.drops():
        return None
    return plan.run(parts.tensors, int(tokens), model.initial_state(1) if state is None else state)


def _is_watched() -> bool:
    """Whether gradients, transforms, tracing, hooks or autocast are at work."""
    return bool(
        torch.is_grad_enabled()
        or torch.is_autocast_enabled("cpu")
        or _len_torch_dispatch_stack()
        or _len_torch_function_stack()
        or peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or torch.jit.is_tracing()
        or any(_GLOBAL_HOOKS)
    )


def _are_plain(tensors: Sequence[Tensor]) -> bool:
    """Whether all are contiguous float32 on the CPU, and tensors of PyTorch itself."""
    return (
        {Tensor, nn.Parameter}.issuperset(map(type, tensors))
        and {torch.float32}.issuperset(map(_dtype, tensors))
        and {torch.strided}.issuperset(map(_layout, tensors))
        and all(map(_is_cpu, tensors))
        and all(map(Tensor.is_contiguous, tensors))
        and not any(map(Tensor.is_neg, tensors))
    )


class _Parts(NamedTuple):
    """What a model is made of now: its modules, the names of modules and parameters in them, and the parameters."""

    modules: list[nn.Module]
    names: list[str]
    tensors: list[Tensor]


def _look(model: CascadeLM) -> _Parts | None:
    """The parts, level by level, or None if some are of another type, have hooks or another `forward`."""
    modules: list = []
    names: list[str] = []
    tensors: list[Tensor | None] = []
    level = list(model._modules.values())
    for _ in range(_DEPTH):
        children: list[nn.Module | None] = []
        for module in level:
            kind = type(module)
            if kind not in _FORWARD or kind.forward is not _FORWARD[kind]:
                return None
            fields = module.__dict__
            if fields["_forward_hooks"] or fields["_forward_pre_hooks"] or "forward" in fields:
                return None
            children.extend(fields["_modules"].values())
            names.extend(fields["_modules"])
            names.extend([name for name, tensor in fields["_parameters"].items() if tensor is not None])
            tensors.extend(fields["_parameters"].values())
        modules += level
        level = children
    return None if level else _Parts(modules, names, [tensor for tensor in tensors if tensor is not None])


class _Plan:
    """The program for a model as it was when it was looked at."""

    def __init__(self, model: CascadeLM, parts: _Parts) -> None:
        from latchwork.models import step_program  # imports numba

        self._modules, self._names = parts.modules, parts.names
        self._shapes = list(map(Tensor.size, parts.tensors))
        fields = [(module.__dict__, name) for module in parts.modules for name in _CHOICES]
        self._choices = [(owner, name, owner[name]) for owner, name in fields if name in owner]
        self._dropouts = [module for module in parts.modules if isinstance(module, nn.Dropout)]
        owners = [(m, name) for m in parts.modules for name, tensor in m._parameters.items() if tensor is not None]
        self._vocab_size = model.vocab_size
        try:
            self._step: StepProgram | None = step_program.write(model, owners, self._shapes)
        except step_program.NotCoveredError:
            self._step = None

    def fits(self, parts: _Parts) -> bool:
        """Whether a program for these parts would be the same."""
        return (
            parts.modules == self._modules
            and parts.names == self._names
            and list(map(Tensor.size, parts.tensors)) == self._shapes
            and all(owner.get(name) is value for owner, name, value in self._choices)
        )

    def drops(self) -> bool:
        return any(dropout.training and dropout.p for dropout in self._dropouts)

    def run(self, parameters: Sequence[Tensor], token: int, state: State) -> tuple[Tensor, State] | None:
        """The step, or None if there is no program or the token or the state does not fit."""
        if self._step is None or not 0 <= token < self._vocab_size:
            return None
        if type(state) is not tuple or not all(type(layer) is LayerState for layer in state):
            return None
        before = list(chain.from_iterable(state))
        if not _are_plain(before) or list(map(Tensor.size, before)) != self._step.states:
            return None
        logits, after = self._step.run(parameters, token, before)
        return logits, tuple(map(LayerState, after[::2], after[1::2]))


_plans: weakref.WeakKeyDictionary[CascadeLM, _Plan] = weakref.WeakKeyDictionary()
