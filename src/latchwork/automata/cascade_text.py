"""A cascade as text: a table in words, and formulas of linear temporal logic over the past."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING

from latchwork.automata.conditions import Conditions
from latchwork.automata.levels import KEEP, Action

if TYPE_CHECKING:
    from latchwork.automata.holonomy import Decomposition

MAX_ATOMS = 5_000
MAX_LEVELS = 64  # finding conditions takes time with the cube of the levels
_WORDS = re.compile(r"true|false|accept|[YS]|x\d+(_\d+)?")


def table(cascade: Decomposition, letters: Sequence[str], limit: int = MAX_ATOMS) -> str:
    """Every level with its values and when it is set, kept and permuted; see `Decomposition.table`."""
    names = _names(letters, cascade.n_letters)
    if cascade.n_levels > MAX_LEVELS:
        return f"# {cascade.summary()}; more than {MAX_LEVELS} levels, which are not written out\n"
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

    A line `name = formula` for every value but 0, and comments from `#` on. Formulas are made of letters (true where
    they are read), `true`, `false`, `!f`, `f & g`, `f | g`, `Y x` (x held before this letter; false at the first) and
    `(f) S (g)` (g held once and f has ever since); `&` and `|` do not mix without brackets. Names after `Y` are values
    before the letter; those in `accept` are values after it. x3 is level 3 of two values; x3_1, x3_2 are values of a
    level of more. A level has value 0 where none of its names holds, as before the first letter.
    """
    if not cascade.is_aperiodic:
        raise ValueError(f"no formula over the past has groups in it: {cascade.summary()}")
    names = _names(letters, cascade.n_letters)
    if cascade.n_levels > MAX_LEVELS:
        return f"# {cascade.summary()}; more than {MAX_LEVELS} levels, which are not written out\n"
    conditions = Conditions(cascade)
    formulas = conditions.formulas
    lasting: list[tuple[int, int, int, int]] = []  # level, value, when it is kept, when it is set
    for level, what in enumerate(cascade.levels):
        actions = conditions.actions(level)
        kept = actions.get(KEEP, formulas.false)
        lasting.extend((level, v, kept, actions.get(Action(reset=v), formulas.false)) for v in range(1, what.values))
    accept = None if accepting is None else conditions.standing(accepting)
    size = sum(formulas.size[part] for *_, kept, reset in lasting for part in {kept, reset} - {formulas.false})
    size += 0 if accept is None else formulas.size[accept]
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
    for level, number, kept, reset in lasting:
        text = written(reset, True)
        if kept != formulas.false:
            text = f"({written(kept, True)}) S ({text})"
        lines.append(f"{name(level, number)} = {text}")
    if accepting is not None and accept is not None:
        empty = cascade.decode(cascade.start) in accepting
        lines.append(f"# the empty word is {'accepted' if empty else 'rejected'}")
        lines.append(f"accept = {written(accept, False)}")
    return "\n".join(lines) + "\n"


def letter_names(alphabet: Sequence[Hashable]) -> list[str]:
    """Names for letters: strings as they are, others as Python writes them; all so where two had the same name."""
    names = [letter if isinstance(letter, str) else repr(letter) for letter in alphabet]
    return names if len(set(names)) == len(names) else [repr(letter) for letter in alphabet]


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
