"""Tasks by name: ``get("latching", size=16)``."""

from latchwork.tasks.registry import TASKS, get, register
from latchwork.tasks.task import IGNORE, LENGTHS, Batch, RegularTask, Task

# isort: off
# Imported in the order in which they are listed.
from latchwork.tasks.latching import Latching
from latchwork.tasks.sequences import Sequences
from latchwork.tasks.induction_heads import InductionHeads
from latchwork.tasks.parity import Parity
from latchwork.tasks.modular_addition import ModularAddition
from latchwork.tasks.flip_flop import FlipFlop
from latchwork.tasks.text import Text
from latchwork.tasks.pairs import Pairs
from latchwork.tasks.function import FunctionTask
# isort: on

__all__ = [
    "IGNORE",
    "LENGTHS",
    "TASKS",
    "Batch",
    "FlipFlop",
    "FunctionTask",
    "InductionHeads",
    "Latching",
    "ModularAddition",
    "Pairs",
    "Parity",
    "RegularTask",
    "Sequences",
    "Task",
    "Text",
    "get",
    "register",
]
