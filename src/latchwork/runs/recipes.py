"""Recipes that were found by measuring; docs/results says how they do."""

from __future__ import annotations

import dataclasses

from latchwork.models.architectures import ARCHITECTURES, CASCADE, ModelConfig
from latchwork.nn.config import CascadeConfig
from latchwork.runs.recipe import Recipe

INDUCTION_RECIPE = Recipe(validate_every=50, patience=None)
"""One scored step a sequence: where hardly any step keeps at first, hardly any gradient comes back from there
(docs/decisions/0004-induction-heads.md)."""

PAIRS_RECIPE = Recipe(steps=2000, batch_size=32, schedule="cosine", validate_every=100, patience=None)
"""Files may be small: an epoch of few updates says little, so updates are counted and not epochs."""

TEXT_MODEL = CascadeConfig(d_model=192, n_layers=3, n_units=384, init="asymmetric", dropout=0.35)
TEXT_RECIPE = Recipe(
    batch_size=8,
    epochs=12,
    lr=4e-3,
    weight_decay=0.1,
    optimizer="adamw",
    schedule="cosine",
    warmup_steps=100,
    clip=1.0,
    matmul="bfloat16",
    patience=None,
)
"""Bytes of a text of about a megabyte, on two cores in about eight minutes."""

DEFAULTS: dict[str, tuple[CascadeConfig, Recipe]] = {
    "inductionheads": (CascadeConfig.small(), INDUCTION_RECIPE),
    "pairs": (CascadeConfig.small(), PAIRS_RECIPE),
    "parity": (CascadeConfig.small(degree=2), Recipe()),
    "text": (TEXT_MODEL, TEXT_RECIPE),
}
"""Model and recipe by task, where those of the paper are not what is best."""


LEARNING_RATES = {
    "lstm": 1e-3,
    "mamba": 3e-3,
    "xlstm-large": 3e-3,
    "mlstm": 3e-3,
    "slstm": 3e-3,
    "gru": 3e-3,
    "mamba2": 3e-3,
    "elman": 1e-3,
    "xlstm": 3e-3,
    "transformer": 1e-3,
}
"""Of baselines: the best of 3e-4, 1e-3 and 3e-3 on one task, chosen once (docs/decisions/0012-baselines.md)."""


def defaults(task: str, arch: str = CASCADE) -> tuple[ModelConfig, Recipe]:
    """Model and recipe of a task where nothing else is said."""
    model, recipe = DEFAULTS.get(task, (CascadeConfig.small(), Recipe()))
    if arch == CASCADE:
        return model, recipe
    lr = LEARNING_RATES.get(arch, Recipe().lr)
    return ARCHITECTURES[arch](), dataclasses.replace(recipe, lr=lr)  # type: ignore[call-arg]
