"""What changes while a model is trained: weights, optimizer, averages, random generators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from latchwork.runs.checkpoint import Checkpoint
from latchwork.runs.recipe import Recipe
from latchwork.tasks.task import IGNORE
from latchwork.training.sharding import shard, split_like, whole, whole_model

if TYPE_CHECKING:
    from accelerate import Accelerator

MicroBatch: TypeAlias = tuple[Tensor, Tensor]
"""Tokens and targets, [B, T] each."""

_WORTH_A_PART = 512
"""Steps of sequences that cost more than to start a forward and a backward pass."""


class Learner:
    """A model with all that its next update depends on, on one device or spread over the processes of accelerate."""

    def __init__(self, build: Callable[[], nn.Module], recipe: Recipe, accelerator: Accelerator) -> None:
        self.recipe, self.accelerator, self._build = recipe, accelerator, build
        self.device = accelerator.device
        self.model = model = build().to(self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=recipe.precision == "float16")
        self.averaged = None
        if recipe.ema is not None:
            self.averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(recipe.ema))
        self.is_sharded = recipe.parallel == "shard" and accelerator.num_processes > 1
        if self.is_sharded:
            for each in (model, *([self.averaged.module] if self.averaged is not None else [])):
                shard(each)
        self.optimizer = make_optimizer(model, recipe)
        replicated = accelerator.num_processes > 1 and not self.is_sharded
        self._forward = accelerator.prepare(model) if replicated else model
        if accelerator.process_index:  # every process drops out other outputs
            torch.manual_seed(recipe.seed + accelerator.process_index * (1 << 32))
        self.model.train()

    def measured(self) -> nn.Module:
        """The model that is validated and kept: the running average of the weights, if there is one.

        In one piece, which is a copy where the weights are in shards; every process has to call it.
        """
        model = self._kept
        return whole_model(model, self._build).to(self.device) if self.is_sharded else model

    @property
    def _kept(self) -> nn.Module:
        return self.model if self.averaged is None else self.averaged.module

    def update(self, batches: Sequence[MicroBatch], lr: float) -> float:
        """One step of the optimizer on micro-batches, every scored step weighing the same; returns the mean loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        scored = torch.stack([(targets != IGNORE).sum() for _, targets in batches]).sum().to(self.device)
        scored = self._over_processes(scored).clamp(min=1)
        if self.device.type == "cpu" and not self.is_sharded:  # processes with shards have to count as many
            batches = [part for tokens, targets in batches for part in by_length(tokens, targets)]
        self.optimizer.zero_grad()
        nats = torch.zeros((), device=self.device)
        for i, (tokens, targets) in enumerate(batches):
            with self._waiting(more=i + 1 < len(batches)), _matmul_in(self.recipe.matmul):
                with self._autocast():
                    logits, _ = self._forward(tokens.to(self.device))
                share = cross_entropy(logits, targets.to(self.device)) / scored
                # data parallelism takes the mean over processes where the sum is wanted
                self.scaler.scale(share * self.accelerator.num_processes).backward()
            nats = nats + share.detach()
        if self.recipe.clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)
        return self._over_processes(nats).item()

    def _waiting(self, *, more: bool) -> Any:
        """Gradients are summed over processes with the last micro-batch."""
        if self.is_sharded:
            cast("Any", self.model).set_requires_gradient_sync(not more)
            return contextlib.nullcontext()
        return self.accelerator.no_sync(self._forward) if more else contextlib.nullcontext()

    def _autocast(self) -> Any:
        if self.recipe.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, getattr(torch, self.recipe.precision))

    def _over_processes(self, value: Tensor) -> Tensor:
        return self.accelerator.reduce(value, "sum") if self.accelerator.num_processes > 1 else value

    def tensors(self) -> dict[str, Tensor]:
        """All but the weights of `measured`, for a checkpoint; every process has to call it."""
        found = {
            f"optimizer/{index}/{field}": whole(value).contiguous()
            for index, fields in self.optimizer.state_dict()["state"].items()
            for field, value in fields.items()
        }
        if self.averaged is not None:
            found |= {f"weights/{name}": whole(value) for name, value in self.model.named_parameters()}
        generators = [torch.get_rng_state()]
        if self.device.type == "cuda":
            generators.append(torch.cuda.get_rng_state(self.device))
        if self.accelerator.num_processes > 1:
            from accelerate.utils import gather_object

            every = gather_object([generators])
        else:
            every = [generators]
        found |= {f"random/{rank}/{i}": state for rank, states in enumerate(every) for i, state in enumerate(states)}
        return found

    def restore(self, checkpoint: Checkpoint, step: int) -> None:
        """Go back to what was saved after `step` updates. Raises: CheckpointError when weights do not fit.

        A process that the checkpoint knows no random generator of (there were fewer processes) starts another one.
        """
        kept = self._build() if self.is_sharded else self._kept
        checkpoint.load_weights(kept)
        if self.is_sharded:
            _fill(self._kept, dict(kept.named_parameters()))
        tensors = checkpoint.tensors()
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            kind, *path = name.split("/")
            if kind == "optimizer":
                like = parameters[int(path[0])]
                split = split_like(tensor.to(self.device), like) if tensor.shape == like.shape else tensor
                state.setdefault(int(path[0]), {})[path[1]] = split
        self.optimizer.load_state_dict({"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]})
        if self.averaged is not None:
            self.averaged.n_averaged.fill_(step)
            _fill(self.model, {name: tensors[f"weights/{name}"] for name, _ in self.model.named_parameters()})
        rank = self.accelerator.process_index
        if f"random/{rank}/0" not in tensors:
            torch.manual_seed(self.recipe.seed + rank * (1 << 32) + step)
            return
        torch.set_rng_state(tensors[f"random/{rank}/0"])
        if self.device.type == "cuda" and f"random/{rank}/1" in tensors:
            torch.cuda.set_rng_state(tensors[f"random/{rank}/1"], self.device)


def by_length(tokens: Tensor, targets: Tensor) -> list[MicroBatch]:
    """The rows of a batch in parts of similar length, each without the steps after its last scored one.

    Nothing that is scored depends on the steps left out, and there are at least `_WORTH_A_PART` fewer for every part.
    """
    steps = torch.arange(1, targets.shape[1] + 1)
    lengths, order = torch.where(targets == IGNORE, 0, steps).amax(1).sort(stable=True)
    parts = []
    for first, end in _similar(lengths, 0, len(lengths)):
        rows, length = order[first:end], max(int(lengths[end - 1]), 1)
        parts.append((tokens[rows, :length], targets[rows, :length]))
    return parts


def _similar(lengths: Tensor, first: int, end: int) -> list[tuple[int, int]]:
    """Ranges of rows from `first` to `end`, which are in ascending order of length, cut where it saves most."""
    saved = (lengths[end - 1] - lengths[first : end - 1]) * torch.arange(1, end - first)
    if not len(saved) or saved.max() < _WORTH_A_PART:
        return [(first, end)]
    cut = first + 1 + int(saved.argmax())
    return [*_similar(lengths, first, cut), *_similar(lengths, cut, end)]


@torch.no_grad()
def _fill(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights that every process has in one piece."""
    for name, parameter in model.named_parameters():
        parameter.copy_(split_like(weights[name].to(parameter.device), parameter))


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Adam as in the paper, or AdamW with weight decay on matrices only."""
    parameters = list(model.parameters())
    if recipe.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.lr, fused=True)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The sum over scored steps in nats, in float32 at least; logits [B, T, classes], targets [B, T].

    Where no step is scored it is 0 and its gradients are zero.
    """
    logits = logits.flatten(0, 1)
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    return F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORE, reduction="sum")


@contextmanager
def _matmul_in(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if precision == "bfloat16" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
