"""Generation from a language model."""

from __future__ import annotations

import itertools

import pytest
import torch

from latchwork import CascadeConfig, CascadeLM
from latchwork.models.sampling import sample

CONFIG = CascadeConfig(d_model=12, n_layers=2, n_units=7, dropout=0.5)


def take(model, n, prompt=None, **options):
    prompt = torch.tensor([[1, 2, 3], [4, 5, 6]]) if prompt is None else prompt
    return torch.stack(list(itertools.islice(model.generate(prompt, **options), n)), dim=1)


def test_greedy_generation_equals_running_the_whole_sequence_again():
    model = CascadeLM(CONFIG, 11).eval()
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    for token in take(model, 10, tokens, temperature=0).unbind(dim=1):
        logits, _ = model(tokens)
        assert torch.equal(logits[:, -1].argmax(dim=-1), token)
        tokens = torch.cat([tokens, token[:, None]], dim=1)


def test_training_flags_are_as_before_and_dropout_is_off():
    model = CascadeLM(CONFIG, 11)
    model.cascade.norm.eval()
    first = take(model, 8, temperature=0)
    assert model.training
    assert model.cascade.layers[0].ffn.dropout.training
    assert not model.cascade.norm.training
    assert torch.equal(first, take(model, 8, temperature=0))
    assert torch.equal(first, take(model.eval(), 8, temperature=0))
    assert not model.training


def test_a_seeded_generator_repeats_itself():
    model = CascadeLM(CONFIG, 11)
    draws = [take(model, 20, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_sampling_follows_the_probabilities():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).expand(40_000, 4)

    def shares(**options):
        return torch.bincount(sample(logits, **options), minlength=4) / 40_000

    assert shares().tolist() == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.02)
    assert shares(top_k=2).tolist() == pytest.approx([0.625, 0.375, 0, 0], abs=0.02)
    assert shares(top_p=0.8).tolist() == pytest.approx([0.625, 0.375, 0, 0], abs=0.02)
    assert shares(top_p=0.81).tolist() == pytest.approx([10 / 19, 6 / 19, 3 / 19, 0], abs=0.02)
    assert shares(temperature=0).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("options", [{"temperature": -1}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}])
def test_bad_sampling_options_are_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        sample(torch.zeros(1, 4), **options)


def test_bad_prompts_are_named():
    with pytest.raises(ValueError, match="at least one token"):
        take(CascadeLM(CONFIG, 11), 1, torch.zeros(1, 0, dtype=torch.long))
    with pytest.raises(ValueError, match="n_outputs = 3"):
        take(CascadeLM(CONFIG, 11, n_outputs=3), 1)


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([[1, 2]], {}, "prompt must be a tensor .*got list"),
        (torch.zeros(1, 0, dtype=torch.long), {}, "at least one token"),
        (torch.zeros(3, dtype=torch.long), {}, r"got \(3,\)"),
        (torch.zeros(1, 1, dtype=torch.long), {"temperature": -1}, "temperature"),
        (torch.zeros(1, 1, dtype=torch.long), {"top_k": 0}, "top_k"),
    ],
)
def test_mistakes_are_named_at_the_call_and_not_at_the_first_token(prompt, options, message):
    model = CascadeLM(CascadeConfig(d_model=8, n_layers=1, n_units=4), 5)
    with pytest.raises(ValueError, match=message):
        model.generate(prompt, **options)
