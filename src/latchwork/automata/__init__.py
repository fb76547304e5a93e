"""Languages as finite automata: regular expressions, operations, files, pictures."""

from latchwork.automata.att import read_att, write_att
from latchwork.automata.dfa import DFA, OTHER
from latchwork.automata.drawing import draw
from latchwork.automata.interchange import from_automata_lib, to_automata_lib
from latchwork.automata.machine import MooreMachine
from latchwork.automata.minimal import minimize, reachable
from latchwork.automata.nfa import NFA
from latchwork.automata.operations import (
    complement,
    counterexample,
    difference,
    equivalent,
    extend,
    intersection,
    is_empty,
    product,
    shortest,
    union,
)
from latchwork.automata.patterns import RegexError
from latchwork.automata.regex import from_regex
from latchwork.automata.search import BudgetError

__all__ = [
    "DFA",
    "NFA",
    "OTHER",
    "BudgetError",
    "MooreMachine",
    "RegexError",
    "complement",
    "counterexample",
    "difference",
    "draw",
    "equivalent",
    "extend",
    "from_automata_lib",
    "from_regex",
    "intersection",
    "is_empty",
    "minimize",
    "product",
    "reachable",
    "read_att",
    "shortest",
    "to_automata_lib",
    "union",
    "write_att",
]
