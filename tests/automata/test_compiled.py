"""Compiled cascades as modules: every dtype, cut and file gives the same bits; gradients; errors."""

from __future__ import annotations

import json

import numpy as np
import pytest
import safetensors.torch
import torch
from cascades import FORMS, forms
from languages import random_dfa

from latchwork.automata import (
    DFA,
    CompiledCascade,
    MooreMachine,
    compare,
    compile,
    from_regex,
)


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


@torch.no_grad()
@pytest.mark.parametrize("seed", range(3))
def test_frozen_calls_give_the_same_bits_and_changes_afterwards_count(seed):
    for cascade in forms(random_dfa(seed, 6, "abcd")):
        letters = torch.randint(cascade.structure.n_letters, (2, 40))
        for parameters_changed in (False, True):
            if parameters_changed:
                for parameter in cascade.parameters():
                    parameter.add_(torch.randn_like(parameter) / 2)
            whole, last = cascade(letters)
            with cascade.frozen():
                state, pieces = None, []
                for piece in letters.split(1, dim=1):
                    scores, state = cascade(piece, state)
                    pieces.append(scores)
            assert torch.equal(torch.cat(pieces, 1), whole)
            assert torch.equal(state, last)


@pytest.mark.parametrize("units", ["scalar", "vector", "mixed"])
def test_cutting_time_into_blocks_changes_no_bit(units, monkeypatch, threads):
    cascade = compile(random_dfa(3, 6) if units != "scalar" else from_regex("(a|b)*abb", "ab"), units)
    letters = torch.randint(2, (3, 150))
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
        with pytest.raises(TypeError, match="a machine with outputs accepts nothing"):
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


def test_a_string_is_one_word_and_not_several():
    cascade = compile(from_regex("(a|b)*abb", "ab"))
    assert cascade.accepts("abb")
    for read in (cascade.judge, cascade.encode):
        with pytest.raises(TypeError, match="several words are needed, got the string 'abb'"):
            read("abb")
    assert cascade.judge(["abb"]).tolist() == [True]


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
