"""How a model is trained; the defaults are those of arXiv 2605.06384, §6."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from latchwork.fields import settle

_MOST_SEQUENCES = 1 << 28
"""The order of an epoch takes 8 bytes of memory a sequence."""


@dataclass(frozen=True)
class Recipe:
    """How the model is trained."""

    seed: int = 0
    """Of the weights, the data and dropout."""
    train_sequences: int = 20_000
    """Sequences in an epoch; of text and pairs all that train instead."""
    validation_sequences: int = 1_000
    """Sequences that are measured after every epoch; of text and pairs all that validate instead."""
    epochs: int = 30
    """Epochs at most, where steps is None."""
    steps: int | None = None
    """Updates of the weights at most, whatever epochs says; None: as many as the epochs have."""
    batch_size: int = 64
    """Sequences in an update, over all processes."""
    micro_batches: int = 1
    """Parts in which the sequences of an update are computed one after another, where memory is short; every scored
    step weighs the same whatever part it is in."""
    lr: float = 1e-3
    """Learning rate at its highest."""
    weight_decay: float = 1e-4
    """Of Adam: added to the gradient. Of AdamW: taken from matrices, apart from the gradient."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """Which of the two."""
    schedule: Literal["step", "cosine", "constant"] = "step"
    """How the learning rate falls: by lr_factor every lr_epochs, along a cosine to a hundredth, or not at all."""
    lr_factor: float = 0.5
    """Factor of the step schedule."""
    lr_epochs: float = 5.0
    """Epochs between the falls of the step schedule."""
    warmup_steps: int = 0
    """Updates over which the learning rate rises to its highest; at most a tenth of all updates are used for it."""
    clip: float | None = None
    """Largest norm of a gradient; longer ones are shortened to it."""
    ema: float | None = None
    """Decay of a running average of the weights, below 1; the average is then what is validated and kept."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of activations while training, by autocast; states and weights are float32 all the same, and validation is in
    float32."""
    matmul: Literal["float32", "bfloat16"] = "float32"
    """What matrix products multiply in while training. bfloat16 is faster where the processor has it and changes
    nothing elsewhere; sums, states and weights are float32 all the same."""
    validate_every: int | None = None
    """Updates between validations (and checkpoints); None: an epoch."""
    minutes: float | None = None
    """Minutes of updates at most, over all resumptions, validations not counted; None: no limit. Where it ends a
    training depends on the speed of the machine."""
    patience: int | None = 10
    """Stop after this many validations without a lower loss; None: never."""
    stop_when_perfect: bool = True
    """Stop when every validation answer is right (tasks measured in accuracy)."""
    parallel: Literal["replicate", "shard"] = "replicate"
    """What several processes keep of the weights: all of them each, or a part each (FSDP2)."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard too, below the run folder."""
    workers: int = 0
    """Processes that prepare batches; the batches are the same for any number."""

    def __post_init__(self) -> None:
        settle(self)
        for name in ("train_sequences", "validation_sequences", "epochs", "batch_size", "micro_batches"):
            _at_least(self, name, 1)
        for name in ("train_sequences", "validation_sequences"):
            if getattr(self, name) > _MOST_SEQUENCES:
                raise ValueError(f"{name} must be at most {_MOST_SEQUENCES:,}, got {getattr(self, name):,}")
        if self.seed >= 1 << 63:
            raise ValueError(f"seed must be below 2^63, got {self.seed}")
        for name in ("seed", "warmup_steps", "workers"):
            _at_least(self, name, 0)
        for name in ("steps", "validate_every", "patience"):
            if getattr(self, name) is not None:
                _at_least(self, name, 1)
        for name in ("lr", "lr_factor", "lr_epochs", "clip", "minutes"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive number, got {value}")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise ValueError(f"weight_decay must be 0 or more, got {self.weight_decay}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema must be between 0 and 1, got {self.ema}")
        if self.parallel == "shard" and self.precision == "float16":
            raise ValueError('parallel "shard" has no float16; use precision "bfloat16"')
        if self.micro_batches > self.batch_size:
            raise ValueError(f"micro_batches must be at most the {self.batch_size} sequences of an update")

    def total_steps(self, epoch_size: int) -> int:
        """Updates at most, where an epoch has `epoch_size` sequences."""
        return self.epochs * self.epoch_steps(epoch_size) if self.steps is None else self.steps

    def epoch_steps(self, epoch_size: int) -> int:
        return math.ceil(epoch_size / self.batch_size)

    def learning_rate(self, step: int, epoch_size: int) -> float:
        """Of update `step`, counted from 0."""
        rise = min(1.0, (step + 1) / (min(self.warmup_steps, self.total_steps(epoch_size) // 10) + 1))
        if self.schedule == "cosine":
            share = step / self.total_steps(epoch_size)
            return self.lr * rise * (0.01 + 0.99 * (0.5 + 0.5 * math.cos(math.pi * share)))
        if self.schedule == "constant":
            return self.lr * rise
        falls = math.floor(step / self.epoch_steps(epoch_size) / self.lr_epochs)
        return self.lr * rise * self.lr_factor**falls

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def _at_least(recipe: Recipe, name: str, least: int) -> None:
    value = getattr(recipe, name)
    if value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
