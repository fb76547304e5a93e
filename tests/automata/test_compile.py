"""Compiled cascades are their automata, on every word."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, reject
from languages import random_dfa, random_nfa
from patterns_at_random import at_random, patterns

from latchwork.automata import (
    DFA,
    NFA,
    BudgetError,
    CompiledCascade,
    MealyMachine,
    MooreMachine,
    RegexError,
    compare,
    compile,
    from_regex,
    is_aperiodic,
    minimize,
    read_att,
)

FORMS = ["scalar", "vector", "mixed", "auto"]


def all_words(n_letters: int, length: int) -> torch.Tensor:
    """[A^T, T] every word of a length: their beginnings are all shorter ones."""
    words = list(itertools.product(range(n_letters), repeat=length))
    return torch.tensor(words, dtype=torch.int64).reshape(len(words), length)


def prefix_verdicts(cascade: CompiledCascade, letters: torch.Tensor) -> np.ndarray:
    """[B, T + 1] what a cascade gives after every beginning of every word."""
    with torch.no_grad():
        first = cascade.decide(cascade.read(cascade.initial(len(letters))))
        rest = cascade.decide(cascade(letters)[0])
    return torch.cat([first[:, None], rest], 1).numpy()


def forms(dfa: DFA) -> list[CompiledCascade]:
    """The cascades of all forms that there are for a language."""
    return [compile(dfa, units) for units in FORMS if units != "scalar" or is_aperiodic(dfa)]


def check_all_words(machine: DFA | NFA, length: int) -> None:
    """Every form says of every word up to a length what the automaton says."""
    dfa = machine.determinize() if isinstance(machine, NFA) else machine
    letters = all_words(dfa.n_symbols, length)
    expected = dfa.accepting[dfa.machine.visit(letters.numpy())]
    for cascade in [*forms(dfa), compile(machine, "vector")]:
        assert np.array_equal(prefix_verdicts(cascade, letters), expected), cascade


def check_pattern(pattern: str, alphabet: str, length: int) -> None:
    try:
        dfa = from_regex(pattern, alphabet)
    except (RegexError, BudgetError):
        reject()  # another pattern takes its place
    letters = all_words(len(alphabet), length)
    words = ["".join(alphabet[a] for a in row) for row in letters.tolist()]
    compiled = re.compile(pattern)
    known: dict[str, bool] = {}

    def matches(word: str) -> bool:
        if word not in known:
            known[word] = compiled.fullmatch(word) is not None
        return known[word]

    expected = np.array([[matches(word[:t]) for t in range(length + 1)] for word in words])
    for cascade in forms(dfa):
        assert np.array_equal(prefix_verdicts(cascade, letters), expected), (pattern, cascade)


@at_random(60)
@given(patterns("ab"))
def test_patterns_are_pythons_on_all_words_up_to_length_8(pattern):
    check_pattern(pattern, "ab", 8)


@pytest.mark.slow
@at_random(1000)
@given(patterns("ab"))
def test_a_thousand_patterns_are_pythons_on_all_words_up_to_length_8(pattern):
    check_pattern(pattern, "ab", 8)


@at_random(20)
@given(patterns("a\n_"))
def test_patterns_over_three_letters_are_pythons(pattern):
    check_pattern(pattern, "a\n_", 6)


@pytest.mark.parametrize("first", [0, pytest.param(60, marks=pytest.mark.slow)])
def test_random_automata_on_all_words_up_to_length_8(first):
    for seed in range(first, 60 if first == 0 else 1060):
        check_all_words(random_dfa(seed, 1 + seed % 8), 8)
        check_all_words(random_nfa(seed, 1 + seed % 8), 8)


def test_random_automata_are_proved_equal():
    for seed in range(40):
        dfa = random_dfa(seed, 1 + seed % 8, "abc")
        for cascade in forms(dfa):
            assert compare(cascade, dfa).holds


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("units", ["vector", "mixed", "auto"])
def test_machines_with_outputs_give_them_after_every_word(seed, units):
    rng = np.random.default_rng(seed)
    states = 1 + seed % 7
    table = rng.integers(0, states, (states, 2))
    moore = MooreMachine(table, rng.integers(-1, 3, states), int(rng.integers(states)))
    mealy = MealyMachine(table, rng.integers(-1, 3, (states, 2)), moore.start, first=7)
    letters = all_words(2, 7)
    cascade = compile(moore, units)
    assert np.array_equal(prefix_verdicts(cascade, letters), moore.outputs[moore.visit(letters.numpy())])
    assert compare(cascade, moore).holds
    cascade = compile(mealy, units)
    outputs = prefix_verdicts(cascade, letters)
    visited = MooreMachine(mealy.transitions, np.zeros(states, dtype=np.int64), mealy.start).visit(letters.numpy())
    assert (outputs[:, 0] == 7).all()
    assert np.array_equal(outputs[:, 1:], mealy.outputs[visited[:, :-1], letters.numpy()])


def test_moore_machine_with_a_group_is_refused_in_scalar_units():
    flip = MooreMachine(np.array([[1, 0], [0, 1]]), np.array([5, 6]))
    with pytest.raises(ValueError, match=r"not star-free.*the word \(0,\) moves state 0 → 1 → 0, a group of 2"):
        compile(flip, "scalar")


REPEATED = {"a": "a", "aa": "aa", "a|aaa": "a", "(aa|b)": "ab", "ab?a": "ab"}


@pytest.mark.parametrize("pattern", REPEATED)
def test_repeated_letters_are_told_apart(pattern):
    """A cascade whose units saw only updated states could not tell aa from a."""
    check_pattern(pattern, "ab", 8)


def test_every_prefix_and_the_whole_word():
    for cascade in forms(from_regex("(a|b)*abb", "ab")):
        assert cascade.verdicts("abba").tolist() == [False, False, False, True, False]
        assert not cascade.accepts("abba")
        assert cascade.judge(["abb", "a"]).tolist() == [True, False]
        assert cascade.judge(["", "abbabb", "b"]).tolist() == [False, True, False]
        assert cascade.judge([]).tolist() == []
        assert cascade.judge([""]).tolist() == [False]


@pytest.mark.parametrize("pattern", ["", "a*", "(a|b)*", "[^ab]", "b+"])
def test_the_empty_word_has_its_verdict(pattern):
    for cascade in forms(from_regex(pattern, "ab")):
        assert cascade.accepts("") == (re.fullmatch(pattern, "") is not None)


def test_unknown_symbols_raise_or_are_other():
    for cascade in forms(from_regex("a*b", "ab")):
        with pytest.raises(ValueError, match="symbol 'c' at position 1 is not in the alphabet"):
            cascade.accepts("acb")
    for cascade in forms(from_regex("a.b")):
        assert cascade.accepts("a€b")
        assert not cascade.accepts("a€")
        assert cascade.other


def test_any_hashable_is_a_letter():
    dfa = DFA(("push", 3, None), np.array([[1, 0, 0], [1, 1, 0]]), np.array([False, True]))
    for cascade in forms(dfa):
        assert cascade.accepts([3, "push", 3])
        assert not cascade.accepts(["push", None])


@pytest.mark.parametrize("units", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_every_dtype_gives_the_same_verdicts(units, dtype):
    """300 values are more than a unit of 128 holds, and the numbers of 128 values are exact in bfloat16."""
    for n in (2, 3, 128, 129, 300) if units == "scalar" else (2, 3, 17):
        last = MooreMachine(np.tile(np.arange(n), (n, 1)), np.arange(n))  # the letter that was read last
        cascade = compile(last, units).to(dtype)
        assert compare(cascade, last).holds
        letters = torch.arange(n)[None]
        assert torch.equal(cascade.decide(cascade(letters)[0]), letters)
        if units == "scalar":
            assert cascade.n_units == (1 if n <= 128 else 2)


def test_levels_above_the_limit_are_read_by_others():
    """Accepted where the last two letters of 150 are equal: a level reads another one of 150 values."""
    n = 150
    table = np.tile(np.arange(n), (n * 2, 1)) + n * (np.arange(n) == (np.arange(2 * n) % n)[:, None])
    dfa = DFA(tuple(range(n)), table, np.arange(2 * n) >= n, start=0)
    cascade = compile(dfa, "scalar")
    word = torch.randint(n, (1, 4000)).repeat_interleave(2, 1)[:, torch.randperm(8000).sort()[0] % 3 > 0]
    expected = dfa.accepting[dfa.machine.visit(word.numpy())]
    assert expected.any()
    assert not expected.all()
    assert np.array_equal(prefix_verdicts(cascade, word), expected)
    assert np.array_equal(prefix_verdicts(cascade.bfloat16(), word), expected)


@pytest.mark.parametrize("units", ["scalar", "vector"])
def test_words_in_pieces_and_padded_give_the_same_bits(units):
    dfa = from_regex("(a|b)*abb(a|b)(a|b)", "ab")
    cascade = compile(dfa, units)
    letters = torch.randint(2, (5, 200))
    whole, last = cascade(letters)
    state, pieces = None, []
    for piece in letters.split([1, 0, 7, 92, 100], dim=1):
        scores, state = cascade(piece, state)
        pieces.append(scores)
    assert torch.equal(torch.cat(pieces, 1), whole)
    assert torch.equal(state, last)
    assert torch.equal(cascade.advance(letters), last)
    mask = torch.rand(5, 200) < 0.6
    scores, end = cascade(letters, mask=mask)
    for row in range(5):
        kept = letters[row, mask[row]][None]
        alone, alone_end = cascade(kept)
        assert torch.equal(scores[row, mask[row]], alone[0])
        assert torch.equal(end[row], alone_end[0])


@pytest.mark.parametrize("units", ["scalar", "vector", "mixed"])
def test_cutting_time_into_blocks_changes_no_bit(units, monkeypatch, threads):
    cascade = compile(random_dfa(3, 6) if units != "scalar" else from_regex("(a|b)*abb", "ab"), units)
    letters = torch.randint(2, (3, 1000))
    whole = cascade(letters)
    for elements, count in ((1, 1), (1000, 2)):
        threads(count)
        monkeypatch.setattr("latchwork.automata.compiled._BLOCK_ELEMENTS", elements)
        for got, wanted in zip(cascade(letters), whole, strict=True):
            assert torch.equal(got, wanted)


@pytest.mark.parametrize("units", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_saved_and_loaded_bit_for_bit(units, dtype, tmp_path):
    dfa = from_regex("[ab]*ab.?") if units != "vector" else from_regex("(a|b)*a(a|b)", "ab")
    cascade = compile(dfa, units).to(dtype)
    with torch.no_grad():
        for parameter in cascade.parameters():
            parameter += 0.01 * torch.randn_like(parameter)
    cascade.save(tmp_path / "c.safetensors")
    loaded = CompiledCascade.load(tmp_path / "c.safetensors")
    assert (loaded.alphabet, loaded.other, loaded.labels) == (cascade.alphabet, cascade.other, cascade.labels)
    assert loaded.structure == cascade.structure
    for name, tensor in cascade.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
        assert loaded.state_dict()[name].dtype == dtype
    letters = torch.randint(len(cascade.alphabet), (2, 50))
    for got, wanted in zip(loaded(letters), cascade(letters), strict=True):
        assert torch.equal(got, wanted)
    again = compile(dfa, units).to(dtype)
    again.load_state_dict(cascade.state_dict())
    assert torch.equal(again(letters)[0], cascade(letters)[0])


def test_the_moore_output_of_the_start_is_kept_by_saving(tmp_path):
    machine = MooreMachine(np.array([[1], [1]]), np.array([4, 9]))
    for units in FORMS:
        compile(machine, units).save(tmp_path / "m.safetensors")
        loaded = CompiledCascade.load(tmp_path / "m.safetensors")
        assert loaded.judge([[], [0]]).tolist() == [4, 9]
        assert loaded.labels == (4, 9)
        with pytest.raises(TypeError, match="gives outputs and accepts nothing"):
            loaded.accepts([0])


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "c.safetensors"
    compile(from_regex("a*b", "ab"), "scalar").save(path)
    whole = path.read_bytes()
    for cut in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="no safetensors file, or damaged"):
            CompiledCascade.load(path)
    for old, new in (
        (b'\\"first\\": 0', b'\\"first\\": 7'),
        (b'\\"alphabet\\": [\\"a\\"', b'\\"alphabet\\": [\\"b\\"'),
    ):
        assert old in whole
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(ValueError, match="is damaged"):
            CompiledCascade.load(path)
    torch.save({}, path)
    with pytest.raises(ValueError, match="no safetensors file"):
        CompiledCascade.load(path)
    with pytest.raises(FileNotFoundError):
        CompiledCascade.load(tmp_path / "none.safetensors")


WRONG = [
    (("labels",), [1.5], "labels must be integers"),
    (("labels",), [None], "labels must be integers"),
    (("alphabet",), "ab", "the alphabet must be a list"),
    (("other",), 1, "`other` true or false"),
    (("structure", "outputs"), [1.0], "a list of whole numbers"),
    (("structure", "outputs"), "1", "a list of whole numbers"),
    (("structure", "outputs"), [True], "a list of whole numbers"),
    (("structure", "n_letters"), float("inf"), "a list of whole numbers"),
    (("structure", "stages", 0, "units", 0, "degree"), -3, "a list of whole numbers"),
    (("structure", "stages", 2, "units", 0, "degree"), 10**15, "numbers are needed"),  # would not fit into memory
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG)
def test_files_with_wrong_fields_are_refused(path, value, message, tmp_path):
    file = tmp_path / "c.safetensors"
    compile(from_regex("a*b", "ab"), "scalar").save(file)
    with safetensors.safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
    facts = json.loads(metadata["cascade"])
    place = facts
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    metadata["cascade"] = json.dumps(facts)
    safetensors.torch.save_file(safetensors.torch.load_file(file), file, metadata)
    with pytest.raises(ValueError, match=f"is damaged: .*{message}"):
        CompiledCascade.load(file)


def test_files_with_numbers_of_other_kinds_are_refused(tmp_path):
    file = tmp_path / "c.safetensors"
    compile(from_regex("a*b", "ab"), "scalar").save(file)
    with safetensors.safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
    tensors = safetensors.torch.load_file(file)
    for changed in (
        {name: tensor.to(torch.complex64) for name, tensor in tensors.items()},
        {**tensors, "start": tensors["start"].double()},
    ):
        safetensors.torch.save_file(changed, file, metadata)
        with pytest.raises(ValueError, match="is damaged: all numbers must be of one dtype"):
            CompiledCascade.load(file)
    with pytest.raises(ValueError, match="is a folder"):
        CompiledCascade.load(tmp_path)


def test_letters_that_json_cannot_hold_are_not_saved(tmp_path):
    cascade = compile(DFA((("a", 1),), np.array([[0]]), np.array([True])))
    with pytest.raises(TypeError, match=r"letter \('a', 1\) cannot be saved"):
        cascade.save(tmp_path / "c.safetensors")
    cascade = compile(DFA((float("nan"),), np.array([[0]]), np.array([True])))
    with pytest.raises(TypeError, match="letter nan cannot be saved"):
        cascade.save(tmp_path / "c.safetensors")
    assert not list(tmp_path.iterdir())


BAD = [
    ({"letters": torch.tensor([[0.0]])}, TypeError, "letters must be a tensor of integers, got torch.float32"),
    ({"letters": "ab"}, TypeError, r"got str; encode\(words\) makes one"),
    ({"letters": torch.tensor([0])}, ValueError, r"letters must be \[B, T\], got \(1,\)"),
    ({"letters": torch.tensor([[2]])}, ValueError, r"letters must be in 0 … 1, got 2 … 2"),
    ({"state": torch.zeros(2, 1)}, ValueError, r"state must be torch.float32 \[B, D\] = \(1, "),
    ({"state": [[0.0]]}, TypeError, r"state must be a tensor, got list; initial\(batch\) makes one"),
    ({"state": torch.zeros(1, 3, device="meta")}, ValueError, "state must be on cpu as the cascade is, got meta"),
    ({"mask": torch.ones(1, 1)}, TypeError, "mask must be a bool tensor"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_arguments_that_do_not_fit_are_refused(change, error, message):
    cascade = compile(from_regex("a*b", "ab"), "scalar")
    arguments = {"letters": torch.tensor([[0]]), **change}
    with pytest.raises(error, match=message):
        cascade(arguments.pop("letters"), **arguments)


def test_a_state_that_does_not_fit_is_not_read():
    cascade = compile(from_regex("a*b", "ab"), "scalar")
    for state in (torch.zeros(1, cascade.n_states + 1), torch.zeros(cascade.n_states)):
        with pytest.raises(ValueError, match=r"state must be torch.float32 \[B, D\] = \(B, "):
            cascade.read(state)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint64])
def test_letters_may_be_any_integers(kind):
    letters = torch.randint(2, (3, 20))
    for cascade in forms(from_regex("(a|b)*abb", "ab")):
        assert torch.equal(cascade(letters.to(kind))[0], cascade(letters)[0])


def test_an_empty_alphabet_has_one_word():
    for accepted in (True, False):
        for cascade in forms(DFA((), np.zeros((1, 0), dtype=np.int64), np.array([accepted]))):
            assert cascade.accepts("") == accepted
            assert cascade(torch.zeros(2, 0, dtype=torch.int64))[0].shape == (2, 0, 1)


def test_what_cannot_be_compiled_is_refused():
    with pytest.raises(TypeError, match="can be compiled, got str; from_regex makes a DFA of a pattern"):
        compile("a*b")
    with pytest.raises(ValueError, match="units must be one of 'auto', 'scalar', 'vector', 'mixed', got 'scalars'"):
        compile(from_regex("a", "a"), "scalars")
    with pytest.raises(ValueError, match=r"not star-free.*the word 'a' moves state 0 → 1 → 0, a group of 2"):
        compile(from_regex("(aa)*", "ab"), "scalar")
    with pytest.raises(BudgetError, match="levels need more than 3 meets"):
        compile(from_regex("(a|b)*abbaab", "ab"), "scalar", budget=3)


def test_long_chains_are_refused_in_time_or_left_to_a_vector_unit():
    """What the levels of a counter to 600 do takes minutes to find out, and more gates than are worth it."""
    n = 600
    counter = MooreMachine(np.minimum(np.arange(n) + 1, n - 1)[:, None], np.arange(n) // (n - 1))
    assert compile(counter).degree == n
    with pytest.raises(BudgetError, match=r"takes more than 20,000 places|need more than 1,000 meets"):
        compile(counter, "scalar", budget=1000)


def test_auto_falls_back_to_a_vector_unit_where_sets_explode():
    """The eighth letter from the end: 2^20 sets of states if determinized."""
    n = 21
    arcs = [(0, "a", 0), (0, "b", 0), (0, "a", 1)] + [(i, x, i + 1) for i in range(1, n) for x in "ab"]
    nfa = NFA.from_arcs("ab", arcs, [0], [n])
    cascade = compile(nfa)
    assert cascade.degree == n + 1
    letters = torch.randint(2, (1, 3000))
    expected = torch.zeros(3000, dtype=torch.bool)
    expected[n - 1 :] = letters[0, : 3000 - n + 1] == 0
    assert torch.equal(cascade.decide(cascade(letters)[0])[0], expected)
    with pytest.raises(BudgetError):
        compile(nfa, "mixed")


def test_dyck_words_of_depth_16():
    rows: dict = {i: {"(": i + 1, ")": i - 1} for i in range(17)}
    rows[0].pop(")"), rows[16].pop("(")
    dfa = DFA.from_table("()", rows, 0, [0])
    assert dfa.n_states == 18
    assert compare(compile(dfa), dfa).holds
    scalar = compile(dfa, "scalar")
    letters = torch.randint(2, (64, 500))
    assert np.array_equal(prefix_verdicts(scalar, letters), dfa.accepting[dfa.machine.visit(letters.numpy())])


def test_the_state_gradient_of_a_permutation_is_one_after_ten_thousand_steps():
    swap = from_regex("(b*ab*a)*b*", "ab")
    letters = torch.randint(2, (1, 10_000))
    cascades = [compile(swap, "vector"), compile(swap, "mixed")]
    # A cascade of a counter modulo 12 keeps and permutes several levels.
    cascades.append(compile(MooreMachine(np.roll(np.arange(12), -1)[:, None], np.arange(12)), "mixed"))
    for cascade in cascades:
        n = len(cascade.alphabet)
        state = cascade.initial(1).detach().clone().requires_grad_()
        _, last = cascade(letters % n, state)
        for coordinate in range(cascade.n_states):
            (gradient,) = torch.autograd.grad(last[0, coordinate], state, retain_graph=True)
            assert gradient.abs().sum() == 1
            assert gradient.max() == 1


def test_kept_scalar_states_have_gradient_one_and_set_ones_hand_it_to_the_table():
    cascade = compile(from_regex("b*a[ab]*", "ab"), "scalar")  # an a has been read
    keep = torch.ones(1, 10_000, dtype=torch.int64)
    state = cascade.initial(1).detach().clone().requires_grad_()
    _, last = cascade(keep, state)
    (gradient,) = torch.autograd.grad(last.sum(), state)
    assert torch.equal(gradient, torch.ones_like(gradient))
    _, last = cascade(torch.cat([torch.zeros(1, 1, dtype=torch.int64), keep], 1))
    last.sum().backward()
    assert cascade.stages[0].set.grad.abs().sum() == 1


def test_a_larger_model_learns_on_top_of_a_compiled_prior(tmp_path):
    """Parity of the a's is compiled; when it counts, after a c, is learned."""
    prior = compile(from_regex("((b|c)*a(b|c)*a)*(b|c)*", "abc"), "vector")
    letters = torch.randint(3, (64, 40))
    even = prior.decide(prior(letters)[0])
    target = (even & (letters == 2)).float()
    embedding, head = (
        torch.nn.Embedding(3, 4),
        torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)),
    )
    parameters = [*prior.parameters(), *embedding.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, 0.02)
    before = {name: p.detach().clone() for name, p in prior.named_parameters()}
    for _ in range(80):
        features = prior.features(letters)[0]
        logits = head(torch.cat([features, embedding(letters)], -1))[..., 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert ((logits > 0) == (target > 0.5)).all()
    assert any(not torch.equal(p, before[name]) for name, p in prior.named_parameters())
    assert prior.decide(prior(letters)[0]).equal(even)  # trained on, it still is the automaton


def test_comparing_finds_the_shortest_word_that_differs():
    cascade, other = compile(from_regex("a*b", "ab"), "scalar"), from_regex("a{0,3}b", "ab")
    assert compare(cascade, other).word == ("a", "a", "a", "a", "b")
    assert compare(cascade, from_regex("a*b?", "ab")).word == ()
    with pytest.raises(ValueError, match="the cascade has 2 letters and the automaton 1"):
        compare(cascade, from_regex("a*", "a"))
    with pytest.raises(BudgetError, match="more than 2 pairs"):
        compare(cascade, other, budget=2)
    with pytest.raises(ValueError, match=r"reads \{'a', 'b'\} and the automaton \{'b', 'a'\}: the same letters"):
        compare(cascade, from_regex("b*a", "ba"))
    with pytest.raises(TypeError, match="got CompiledCascade"):
        compare(cascade, cascade)


def test_all_that_is_compiled_can_be_compared():
    nfa = random_nfa(3, 5)
    assert compare(compile(nfa, "vector"), nfa).holds
    mealy = MealyMachine(np.array([[1, 0], [0, 1]]), np.array([[3, 4], [5, 3]]))
    assert compare(compile(mealy), mealy).holds


@pytest.mark.slow
@pytest.mark.parametrize(("name", "units"), [("04.04.SP.6.1.1", "vector"), ("16.16.LTT.4.3.2", "scalar")])
def test_a_million_letters_in_one_call_have_the_verdicts_of_the_automaton(shared_data, name, units):
    """One of them has 136 states: R over so many steps would need 70 GB."""
    dfa = minimize(read_att(shared_data / "mlregtest" / f"{name}.att"))
    letters = torch.randint(dfa.n_symbols, (1, 1_000_000))
    assert np.array_equal(
        prefix_verdicts(compile(dfa, units), letters), dfa.accepting[dfa.machine.visit(letters.numpy())]
    )
