"""A cascade as text: a table in words, and formulas of linear temporal logic over the past."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from latchwork.automata.conditions import Conditions
from latchwork.automata.levels import Action

if TYPE_CHECKING:
    from latchwork.automata.holonomy import Decomposition

MAX_ATOMS = 5_000
_WORDS = re.compile(r"true|false|accept|[YS]|x\d+(_\d+)?")


def table(cascade: Decomposition, letters: Sequence[str], limit: int = MAX_ATOMS) -> str:
    """Every level with its values and when it is set, kept and permuted; see `Decomposition.table`."""
    names = _names(letters, cascade.n_letters)
    conditions = Conditions(cascade)
    formulas = conditions.formulas

    def letter(chosen: list[int], no: bool) -> str:
        return ("any letter but " if no else "") + " or ".join(names[item] for item in chosen)

    def value(level: int, values: list[int], no: bool) -> str:
        if no and cascade.levels[level].values == 2:
            return f"level {level} is 0"
        return f"level {level} is {'not ' if no else ''}{' or '.join(map(str, values))}"

    lines = [cascade.summary(), "Conditions speak of the letter read and of the values before it; all start at 0."]
    for level, what in enumerate(cascade.levels):
        kind = "keeps and resets" if what.kind == "reset" else f"permutes too, degree {what.degree}"
        lines.append(f"level {level}: values 0 … {what.values - 1}, {kind}")
        for action, formula in conditions.actions(level).items():
            if formulas.size[formula] > limit:
                when = f"a condition of {formulas.size[formula]} letters and values, more than {limit}"
            elif formula == formulas.true:
                when = "always"
            else:
                when = formulas.write(formula, letter, value, (" and ", " or "))
            lines.append(f"  {_in_words(action)}: {when}")
    return "\n".join(lines) + "\n"


def past_ltl(
    cascade: Decomposition, letters: Sequence[str], accepting: Collection[int] | None = None, limit: int = MAX_ATOMS
) -> str:
    """Formulas for every value of every level, and for acceptance; see `Decomposition.past_ltl`.

    A line `name = formula` a value but 0, and comments from `#`. Formulas are made of letters (true where it is read),
    `true`, `false`, `!f`, `f & g`, `f | g`, `Y x` (x held before this letter; false at the first) and `(f) S (g)` (g
    held once and f has ever since); `&` and `|` are not mixed without brackets. x3 is level 3 of two values, x3_1 and
    x3_2 values of a level of more; a level has value 0 where none of its names holds, as before the first letter.
    """
    if not cascade.is_aperiodic:
        raise ValueError(f"no formula over the past has groups in it: {cascade.summary()}")
    names = _names(letters, cascade.n_letters)
    conditions = Conditions(cascade)
    formulas = conditions.formulas
    levels = [conditions.actions(level) for level in range(cascade.n_levels)]
    accept = None if accepting is None else conditions.standing(accepting)
    size = 0 if accept is None else formulas.size[accept]
    for level, actions in enumerate(levels):
        keep = formulas.size[actions.get(Action(), formulas.false)]
        size += sum(
            keep + formulas.size[actions.get(Action(reset=value), formulas.false)]
            for value in range(1, cascade.levels[level].values)
        )
    if size > limit:
        return f"# {cascade.summary()}; formulas of {size} letters and values, more than {limit}\n"

    def name(level: int, value: int) -> str:
        return f"x{level}" if cascade.levels[level].values == 2 else f"x{level}_{value}"

    def written(formula: int, before: bool) -> str:
        mark = "Y " if before else ""
        return formulas.write(
            formula,
            lambda chosen, no: one_of([names[letter] for letter in chosen], no),
            lambda level, values, no: one_of([mark + name(level, value) for value in values], no),
            (" & ", " | "),
        )

    def one_of(texts: list[str], no: bool) -> str:
        joined = " | ".join(texts)
        return joined if not no else f"!{joined}" if len(texts) == 1 else f"!({joined})"

    lines = [f"# {cascade.summary()}"]
    for level, actions in enumerate(levels):
        for value in range(1, cascade.levels[level].values):
            kept = written(actions.get(Action(), formulas.false), True)
            reset = written(actions.get(Action(reset=value), formulas.false), True)
            lines.append(f"{name(level, value)} = ({kept}) S ({reset})")
    if accepting is not None and accept is not None:
        empty = cascade.decode(cascade.start) in accepting
        lines.append(f"# the empty word is {'accepted' if empty else 'rejected'}")
        lines.append(f"accept = {written(accept, False)}")
    return "\n".join(lines) + "\n"


def _names(letters: Sequence[str], count: int) -> list[str]:
    """Letters as they are written: as they are where that cannot be misread, else in quotes."""
    if len(letters) != count:
        raise ValueError(f"{count} letters need names, got {len(letters)}")
    if len(set(letters)) != count:
        raise ValueError("names of letters must differ")
    return [
        name if name.isidentifier() and not _WORDS.fullmatch(name) else json.dumps(name, ensure_ascii=False)
        for name in letters
    ]


def _in_words(action: Action) -> str:
    if action.reset is not None:
        return f"set to {action.reset}"
    if action.permutation is None:
        return "kept"
    moved = ", ".join(f"{old} → {new}" for old, new in enumerate(action.permutation) if old != new)
    return f"permuted ({moved})"
