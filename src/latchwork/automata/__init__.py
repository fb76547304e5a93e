"""Languages as finite automata: regular expressions, operations, files, pictures, cascades."""

from latchwork.automata.aperiodic import Witness, group_witness, is_aperiodic, monoid_size
from latchwork.automata.att import read_att, write_att
from latchwork.automata.compiled import CompiledCascade
from latchwork.automata.compiler import compile
from latchwork.automata.dfa import DFA, OTHER
from latchwork.automata.drawing import draw
from latchwork.automata.equality import Equality, compare
from latchwork.automata.holonomy import Decomposition, decompose
from latchwork.automata.interchange import from_automata_lib, to_automata_lib
from latchwork.automata.machine import MooreMachine
from latchwork.automata.mealy import MealyMachine
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
    "CompiledCascade",
    "Decomposition",
    "Equality",
    "MealyMachine",
    "MooreMachine",
    "RegexError",
    "Witness",
    "compare",
    "compile",
    "complement",
    "counterexample",
    "decompose",
    "difference",
    "draw",
    "equivalent",
    "extend",
    "from_automata_lib",
    "from_regex",
    "group_witness",
    "intersection",
    "is_aperiodic",
    "is_empty",
    "minimize",
    "monoid_size",
    "product",
    "reachable",
    "read_att",
    "shortest",
    "to_automata_lib",
    "union",
    "write_att",
]
