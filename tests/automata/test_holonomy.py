"""The holonomy decomposition follows its automaton, and so do its formulas."""

from __future__ import annotations

import itertools
import json
import re

import mlregtest
import numpy as np
import pytest
from languages import random_dfa, words
from test_aperiodic import is_aperiodic_by_powers, mixture

from latchwork.automata import (
    DFA,
    OTHER,
    BudgetError,
    Decomposition,
    decompose,
    from_regex,
    holonomy,
    is_aperiodic,
    minimize,
    walk,
)

RANDOM = np.random.default_rng(2)


def of_letters(*letters):
    return np.array(letters).T


def cycle(n):
    return [*range(1, n), 0]


def exchange(n):
    return [1, 0, *range(2, n)]


def mirrored(n):
    return [(n - state) % n for state in range(n)]


# Table, values of the levels, degree.
NAMED = {
    "one state": (of_letters([0]), [], 1),
    "one state, no letters": (np.zeros((1, 0), dtype=int), [], 1),
    "identity letters": (of_letters([0, 1, 2], [0, 1, 2]), [], 1),
    "flip-flop": (of_letters([0, 0], [1, 1], [0, 1]), [2], 1),
    "resets": (of_letters([0] * 3, [1] * 3, [2] * 3), [3], 1),
    "once": (of_letters([1, 1]), [2], 1),
    "exactly a": (of_letters([1, 2, 2]), [2, 2], 1),
    "parity": (of_letters([0, 1], [1, 0]), [2], 2),
    "mod 3": (of_letters(cycle(3)), [3], 3),
    "mod 4": (of_letters(cycle(4)), [2, 2], 2),
    "mod 5": (of_letters(cycle(5)), [5], 5),
    "mod 6": (of_letters(cycle(6), range(6)), [3, 2], 3),
    "mod 12": (of_letters(cycle(12)), [3, 2, 2], 3),
    "S3": (of_letters(cycle(3), exchange(3)), [3], 3),
    "S4": (of_letters(cycle(4), exchange(4)), None, 4),
    "A5": (of_letters(cycle(5), [1, 2, 0, 3, 4]), None, 5),
    "square": (of_letters(cycle(4), mirrored(4)), [2, 2], 2),
    "pentagon": (of_letters(cycle(5), mirrored(5)), None, 5),
    "hexagon": (of_letters(cycle(6), mirrored(6)), None, 3),
    "parity until a reset": (of_letters([1, 0], [0, 0]), [2], 2),
    "two circles": (of_letters([1, 2, 0, 4, 3], [3, 3, 3, 0, 0]), None, 3),
    "circle of 3 with a tail": (of_letters([1, 2, 3, 4, 2]), None, 3),
    "all maps of 4": (of_letters(cycle(4), exchange(4), [0, 0, 2, 3]), None, 4),
}
named = pytest.mark.parametrize("name", NAMED)


def check(transitions, start=0, most=3000):
    """The identity from the start and from every encoded state on; all coordinates if there are at most so many."""
    cascade = Decomposition(transitions, start)
    reached = [start]
    for state in reached:
        reached.extend(dict.fromkeys(int(target) for target in transitions[state] if target not in reached))
    assert cascade.start == cascade.encode(start) == (0,) * cascade.n_levels
    queue = [cascade.start, *(cascade.encode(state) for state in reached)]
    assert [cascade.decode(coordinates) for coordinates in queue] == [start, *reached]
    seen = set(queue)
    queue = list(seen)
    rows = transitions.tolist()
    for coordinates in queue:
        for letter, target in enumerate(rows[cascade.decode(coordinates)]):
            after = cascade.step(coordinates, letter)
            assert cascade.decode(after) == target
            if after not in seen and len(seen) < most:
                seen.add(after)
                queue.append(after)
    assert all(0 <= v < level.values for values in seen for v, level in zip(values, cascade.levels, strict=True))
    return cascade, seen


@named
def test_named_automata_are_followed(name):
    transitions, values, degree = NAMED[name]
    for start in range(len(transitions)):
        cascade, _ = check(transitions, start)
        if start == 0:
            assert cascade.degree == degree
            assert values is None or [level.values for level in cascade.levels] == values


def test_all_automata_of_three_states_and_two_letters_are_followed():
    for entries in itertools.product(range(3), repeat=6):
        check(np.array(entries).reshape(3, 2))


@pytest.mark.parametrize("batch", range(8))
def test_random_automata_are_followed(batch):
    random = np.random.default_rng(100 + batch)
    for _ in range(50):
        transitions = mixture(random, int(random.integers(1, 9)), int(random.integers(1, 4)))
        cascade, _ = check(transitions, int(random.integers(len(transitions))), most=300)
        assert (cascade.degree == 1) == cascade.is_aperiodic


def test_levels_are_what_their_actions_are():
    for _ in range(60):
        transitions = mixture(RANDOM, int(RANDOM.integers(2, 8)), 2)
        cascade, seen = check(transitions)
        reached = [state for state in range(len(transitions)) if state_is_reached(cascade, state)]
        renamed = {state: index for index, state in enumerate(reached)}
        trimmed = np.array([[renamed[target] for target in transitions[state]] for state in reached])
        assert cascade.is_aperiodic == is_aperiodic_by_powers(trimmed)
        for level, what in enumerate(cascade.levels):
            assert what.values >= 2
            assert (what.kind == "reset") == (what.generators == ()) == (what.degree == 1)
            assert 1 <= what.degree <= what.values
            for coordinates, letter in itertools.product(seen, range(2)):
                action = cascade.action(level, letter, coordinates[:level])
                assert action(coordinates[level]) == cascade.step(coordinates, letter)[level]
                if action.kind == "permute":
                    assert action.permutation in what.generators
                    assert sorted(action.permutation) == list(range(what.values))


def state_is_reached(cascade, state):
    try:
        cascade.encode(state)
    except ValueError:
        return False
    return True


def test_small_budgets_change_no_result(monkeypatch):
    monkeypatch.setattr(holonomy, "MAX_CACHE", 2)
    monkeypatch.setattr(walk, "MAX_TRIPLES", 1)
    for _ in range(60):
        check(mixture(RANDOM, int(RANDOM.integers(1, 8)), 2), most=500)


def test_mlregtest_is_followed(shared_data):
    figures = []
    for path in sorted((shared_data / "mlregtest").glob("*.att")):
        transitions, _, letters = mlregtest.read(path)
        cascade, seen = check(transitions, most=100)
        if len(seen) >= 100 and path.name.startswith("04.04"):  # too many: a long random walk
            coordinates, state = cascade.start, 0
            for letter in RANDOM.integers(0, len(letters), 10_000).tolist():
                coordinates, state = cascade.step(coordinates, letter), transitions[state, letter]
                assert cascade.decode(coordinates) == state
        assert cascade.is_aperiodic == (path.name.split(".")[2] not in ("Zp", "Reg"))
        if cascade.is_aperiodic:
            figures.append((cascade.n_levels, cascade.flip_flops()))
    assert np.median(figures, axis=0).tolist() == [6, 6]


def test_states_that_the_start_does_not_lead_to_are_left_out():
    cascade = Decomposition(of_letters([0, 2, 1, 3]), start=1)
    assert cascade.summary() == "levels 1, values 2, flip-flops 0, degree 2"
    with pytest.raises(ValueError, match="state 3 is not reached from the start"):
        cascade.encode(3)


def test_what_does_not_fit_is_refused():
    flip_flop = NAMED["flip-flop"][0]
    with pytest.raises(ValueError, match="start must be in 0 … 1"):
        Decomposition(flip_flop, 2)
    with pytest.raises(ValueError, match=r"must be \[S, A\]"):
        Decomposition(np.array([0, 1]))
    with pytest.raises(ValueError, match=r"must be \[S, A\] with S ≥ 1"):
        Decomposition(np.zeros((0, 2), dtype=int))
    with pytest.raises(ValueError, match="must lead to states 0 … 1"):
        Decomposition([[0, -1], [0, 1]])
    with pytest.raises(ValueError, match="must be integers"):
        Decomposition([[0.0], [1.0]])
    with pytest.raises(BudgetError, match="more than 20 images of the 12 states; a larger limit may help"):
        Decomposition(of_letters(cycle(12), [0, *range(11)]), limit=20)
    cascade = Decomposition(flip_flop)
    with pytest.raises(ValueError, match="1 values are needed, got 2"):
        cascade.step((0, 0), 0)
    with pytest.raises(ValueError, match="letter must be in 0 … 2"):
        cascade.step((0,), 3)
    with pytest.raises(ValueError, match="level must be in 0 … 0"):
        cascade.action(1, 0, (0,))
    with pytest.raises(ValueError, match="name no state"):
        cascade.decode((2,))
    with pytest.raises(ValueError, match="3 letters need names, got 2"):
        cascade.table("ab")
    with pytest.raises(ValueError, match="names of letters must differ"):
        cascade.past_ltl("aba")
    with pytest.raises(ValueError, match="no formula over the past has groups in it"):
        Decomposition(NAMED["parity"][0]).past_ltl("ab")


# Case 28: a word of one a is accepted, two are not; "." stands for other letters.
EXACTLY_A = of_letters([1, 2, 2], [2, 2, 2])


def test_a_table_says_when_levels_are_set_kept_and_permuted():
    assert Decomposition(EXACTLY_A).table("a.") == (
        "levels 2, values 2·2, flip-flops 2\n"
        "Conditions speak of the letter read and of the values before it; all start at 0.\n"
        "level 0: values 0 … 1, keeps and resets\n"
        "  set to 1: always\n"
        "level 1: values 0 … 1, keeps and resets\n"
        "  set to 0: a and level 0 is 0\n"
        '  set to 1: "." or level 0 is 1\n'
    )
    assert (
        Decomposition(NAMED["parity until a reset"][0])
        .table("ab")
        .endswith("level 0: values 0 … 1, permutes too, degree 2\n  set to 0: b\n  permuted (0 → 1, 1 → 0): a\n")
    )
    shortened = Decomposition(EXACTLY_A).table("a.", limit=1)
    assert "set to 0: a condition of 2 letters and values, more than 1\n" in shortened


def test_formulas_read_the_values_before_the_letter():
    text = Decomposition(EXACTLY_A).past_ltl("a.", accepting=[1])
    assert text == (
        "# levels 2, values 2·2, flip-flops 2\n"
        "x0 = true\n"
        'x1 = "." | Y x0\n'
        "# the empty word is rejected\n"
        "accept = x0 & !x1\n"
    )
    assert "formulas of 5 letters and values, more than 3" in Decomposition(EXACTLY_A).past_ltl("a.", [1], limit=3)


def parsed(text):
    """{name: formula} of a past-LTL text; a formula is a nested tuple, read by `true_now`."""
    lines = [line.split(" = ", 1) for line in text.splitlines() if not line.startswith("#")]
    formulas = {}
    for name, line in lines:
        formulas[name], rest = joined(re.findall(r'"(?:[^"\\]|\\.)*"|\w+|[()!&|]', line))
        assert rest == []
    return formulas


def joined(tokens):
    """f S g, f & g & …, f | g | …: joints do not mix without brackets."""
    first, tokens = single(tokens)
    parts, joint = [first], tokens[0] if tokens else None
    while tokens and tokens[0] != ")":
        assert tokens[0] == joint
        part, tokens = single(tokens[1:])
        parts.append(part)
    assert joint != "S" or len(parts) == 2
    return (first if len(parts) == 1 else (joint, *parts)), tokens


def single(tokens):
    first, *rest = tokens
    if first == "!":
        part, rest = single(rest)
        return ("!", part), rest
    if first == "Y":
        return ("Y", rest[0]), rest[1:]
    if first == "(":
        part, rest = joined(rest)
        assert rest[0] == ")"
        return part, rest[1:]
    return ("atom", first), rest


def true_now(formula, letter, now, before, earlier):
    """Whether a formula holds; now, before: names that hold after and before the letter; earlier: its own name did."""
    kind, *parts = formula
    if kind == "atom":
        name = parts[0]
        known = {"true": True, "false": False, **now}
        return known[name] if name in known else (json.loads(name) if name[0] == '"' else name) == letter
    if kind == "Y":
        return before.get(parts[0], False)
    truths = [true_now(part, letter, now, before, earlier) for part in parts]
    if kind == "!":
        return not truths[0]
    if kind == "S":
        return truths[1] or (truths[0] and earlier)
    return all(truths) if kind == "&" else any(truths)


def check_formulas(transitions, accepting, letters, length=5):
    """The formulas hold where the automaton accepts and the cascade has the values, after all words to a length."""
    cascade = Decomposition(transitions)
    text = cascade.past_ltl(letters, accepting, limit=10**6)
    assert (f"the empty word is {'accepted' if 0 in accepting else 'rejected'}") in text
    formulas = parsed(text)

    def read(state, coordinates, before, left):
        for letter in range(transitions.shape[1]):
            now = {}
            for name, formula in formulas.items():
                now[name] = true_now(formula, letters[letter], now, before, before.get(name, False))
            target, after = transitions[state, letter], cascade.step(coordinates, letter)
            assert now["accept"] == (target in accepting)
            assert named_values(cascade, now) == after
            if left > 1:
                read(target, after, now, left - 1)

    read(0, cascade.start, {}, length)


def named_values(cascade, truth):
    values = []
    for level, what in enumerate(cascade.levels):
        names = [f"x{level}"] if what.values == 2 else [f"x{level}_{value}" for value in range(1, what.values)]
        holding = [value for value, name in enumerate(names, 1) if truth[name]]
        assert len(holding) <= 1
        values.append(sum(holding))
    return tuple(values)


def test_formulas_hold_after_the_words_that_the_automaton_accepts():
    check_formulas(EXACTLY_A, [1], ["a", "."])
    check_formulas(NAMED["flip-flop"][0], [1], ["S", "x0", "keep"])
    check_formulas(NAMED["resets"][0], [0, 2], "abc")
    checked = 0
    while checked < 25:
        transitions = mixture(RANDOM, int(RANDOM.integers(2, 7)), 2)
        if Decomposition(transitions).is_aperiodic:
            check_formulas(transitions, RANDOM.choice(len(transitions), 2).tolist(), "ab")
            checked += 1


def test_formulas_of_mlregtest(shared_data):
    for name in ("04.04.LT.2.1.0", "04.04.SF.0.0.0", "04.03.TSL.2.1.1", "04.04.PT.2.1.0", "04.04.PLT.4.2.1"):
        transitions, accepting, letters = mlregtest.read(shared_data / "mlregtest" / f"{name}.att")
        check_formulas(transitions, accepting, letters)


def test_long_cascades_are_summed_up():
    chain = Decomposition(of_letters(np.minimum(np.arange(80) + 1, 79), range(80)))
    assert (
        chain.table("ab")
        == chain.past_ltl("ab")
        == f"# {chain.summary()}; more than 64 levels, which are not written out\n"
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_language_is_followed_by_its_minimal_automaton(seed):
    dfa = random_dfa(seed, 6)
    smallest = minimize(dfa)
    cascade = decompose(dfa)
    assert cascade.is_aperiodic == (cascade.degree == 1) == is_aperiodic(dfa)
    for word in words("ab", 7):
        coordinates = cascade.start
        for letter in word:
            coordinates = cascade.step(coordinates, dfa.alphabet.index(letter))
        assert smallest.accepting[cascade.decode(coordinates)] == (cascade.decode(coordinates) in cascade.accepting)
        assert (cascade.decode(coordinates) in cascade.accepting) == dfa.accepts(word)


@pytest.mark.parametrize("pattern", ["(a|b)*abb", "a?b*", "(ab)*", "[ab]*a.*", "a.c|b", r"[\"'\\]+a"])
def test_formulas_of_a_language_name_its_letters(pattern):
    dfa = from_regex(pattern)
    text = decompose(dfa).past_ltl()
    formulas = parsed(text)
    assert f"the empty word is {'accepted' if dfa.accepts('') else 'rejected'}" in text
    for word in words(dfa.alphabet, 4):
        now = {}
        for letter in word:
            before, now = now, {}
            for name, formula in formulas.items():
                now[name] = true_now(formula, str(letter), now, before, before.get(name, False))
        assert not word or now["accept"] == dfa.accepts(word)


def turn(*alphabet):
    """The last letter is kept in mind, all others are forgotten."""
    last = len(alphabet) - 1
    table = np.array([[int(a == last) for a in range(len(alphabet))]] * 2)
    return DFA(alphabet, table, np.array([False, True]))


@pytest.mark.parametrize(
    ("alphabet", "formula"),
    [
        ("ab", "b"),
        (("open", "close"), "close"),
        (("a", OTHER), "OTHER"),
        (("a", "é c"), '"é c"'),
        (("a", "S"), '"S"'),
        (("a", 1), '"1"'),
        ((1, (2, "x")), "\"(2, 'x')\""),
        ((1, "1"), "\"'1'\""),  # as Python writes it, to tell it from the number
        ((OTHER, "OTHER"), "\"'OTHER'\""),
    ],
)
def test_letters_of_any_kind_are_written_so_that_they_can_be_told_apart(alphabet, formula):
    cascade = decompose(turn(*alphabet))
    assert f"x0 = {formula}\n" in cascade.past_ltl()
    assert f"  set to 1: {formula}\n" in cascade.table()


def test_other_names_and_states_can_be_given():
    cascade = decompose(turn("a", "b"))
    assert "x0 = yes\n" in cascade.past_ltl(["no", "yes"])
    assert "accept = !x0\n" in cascade.past_ltl(accepting=[0])
    assert "accept" not in Decomposition([[0, 1], [0, 1]]).past_ltl()
