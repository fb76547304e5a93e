"""latchwork: recurrent networks with exact memory.

A MinMax recurrent neural cascade updates its state by x_t = max(min(r_t, x_{t−1}), s_t). It runs as one pass, never
rounds, and keeps its state exactly for millions of steps.
"""

from latchwork.models.cascade_lm import CascadeLM
from latchwork.nn.cascade import Cascade
from latchwork.nn.config import CascadeConfig
from latchwork.nn.rnn import MinMaxRNN
from latchwork.ops.scan import minmax_matrix_scan, minmax_scan

__version__ = "0.1.0"

__all__ = ["Cascade", "CascadeConfig", "CascadeLM", "MinMaxRNN", "__version__", "minmax_matrix_scan", "minmax_scan"]
