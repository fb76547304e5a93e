"""Other recurrent networks, and a Transformer, behind the interface of `latchwork.CascadeLM`.

Bodies have two layers and nearly the size of the small cascade's, 127,432 parameters without embedding and head:

| name | class | library | sizes | body |
|---|---|---|---|---|
| lstm | `LSTMConfig` | torch | d_model 89 | 128,160 |
| gru | `GRUConfig` | torch | d_model 103 | 128,544 |
| elman | `ElmanConfig` | torch | d_model 178 | 127,448 |
| mamba | `MambaConfig` | mambapy | d_model 92, 16 states | 126,500 |
| mamba2 | `Mamba2Config` | transformers | d_model 90, 64 states, 9 heads | 125,624 |
| xlstm-large | `XLSTMLargeConfig` | transformers | d_model 64, 4 heads, hidden 220 | 126,928 |
| mlstm | `MLSTMConfig` | xlstm | d_model 96, 4 heads | 127,408 |
| slstm | `SLSTMConfig` | xlstm | d_model 100, 4 heads, hidden 140 | 126,500 |
| xlstm | `XLSTMConfig` | xlstm | d_model 96, 4 heads, hidden 152 | 127,112 |
| transformer | `TransformerConfig` | transformers | d_model 72, 4 heads, window 512 | 126,432 |
"""

from __future__ import annotations

from latchwork.models.baselines.base import Baseline, BaselineLM
from latchwork.models.baselines.mamba import MambaConfig
from latchwork.models.baselines.mamba2 import Mamba2Config
from latchwork.models.baselines.recurrent import ElmanConfig, GRUConfig, LSTMConfig
from latchwork.models.baselines.transformer import TransformerConfig
from latchwork.models.baselines.xlstm import MLSTMConfig, SLSTMConfig, XLSTMConfig
from latchwork.models.baselines.xlstm_large import XLSTMLargeConfig

BASELINES: dict[str, type[Baseline]] = {
    "lstm": LSTMConfig,
    "gru": GRUConfig,
    "elman": ElmanConfig,
    "mamba": MambaConfig,
    "mamba2": Mamba2Config,
    "xlstm-large": XLSTMLargeConfig,
    "mlstm": MLSTMConfig,
    "slstm": SLSTMConfig,
    "xlstm": XLSTMConfig,
    "transformer": TransformerConfig,
}
"""Configurations by the name that ``--arch`` takes."""

__all__ = [
    "BASELINES",
    "Baseline",
    "BaselineLM",
    "ElmanConfig",
    "GRUConfig",
    "LSTMConfig",
    "MLSTMConfig",
    "Mamba2Config",
    "MambaConfig",
    "SLSTMConfig",
    "TransformerConfig",
    "XLSTMConfig",
    "XLSTMLargeConfig",
]
