"""Cascade and CascadeLM: sizes, streaming, masks, packing."""

from __future__ import annotations

import itertools

import pytest
import torch
from helpers import assert_close

from latchwork import Cascade, CascadeConfig, CascadeLM, state

SMALL = {"d_model": 12, "n_layers": 3, "n_units": 7, "dropout": 0.5}


def parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts_are_the_papers():
    with torch.device("meta"):
        assert parameters(CascadeLM(CascadeConfig.paper_lm(), 50_257)) == 112_465_992
    assert parameters(Cascade(CascadeConfig.small())) == 127_432
    assert parameters(Cascade(CascadeConfig.small(output_gate=False))) == 120_152
    assert parameters(Cascade(CascadeConfig.small(n_units=90))) == 163_732
    scalar, vector = CascadeConfig.small(), CascadeConfig.small(degree=2)
    more = 40 * (3 * 91 + 91 + 91 + 90)  # a layer's R, s, gate and out
    assert parameters(Cascade(vector)) == parameters(Cascade(scalar)) + 2 * more
    assert (CascadeConfig.paper_lm().hidden, CascadeConfig.small().hidden) == (948, 118)


SWITCHES = itertools.product(("basic", "gated"), ("gated", "basic"), (True, False), (True, False))
CHOICES = [
    *({"conv": conv, "ffn": ffn, "output_gate": gate, "learned_x0": x0} for conv, ffn, gate, x0 in SWITCHES),
    *({"norm": norm, "init": init} for norm in ("rmsnorm", "none") for init in ("small_init", "kaiming")),
    *({"activation": name} for name in ("gelu", "silu", "tanh", "sigmoid")),
    *({"degree": n, "learned_x0": x0, "output_gate": x0} for n in (2, 3) for x0 in (True, False)),
]


@pytest.mark.parametrize("options", CHOICES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whole_sequence_chunks_and_single_tokens_agree(options, dtype):
    model = CascadeLM(CascadeConfig(**SMALL, **options), 11, n_outputs=5).to(dtype).eval()
    for p in model.parameters():  # a learned start is zero at first and would hide mistakes
        torch.nn.init.normal_(p, std=0.2)
    tokens = torch.randint(0, 11, (3, 20))
    whole, end = model(tokens)
    for sizes in ([20], [7, 1, 12], [1] * 20):
        pieces, carried = [], None
        for chunk in tokens.split(sizes, dim=1):
            logits, carried = model(chunk, carried)
            pieces.append(logits)
        assert_close(torch.cat(pieces, dim=1), whole)
        for a, b in zip(carried, end, strict=True):
            assert_close(a.conv, b.conv)
            assert_close(a.unit, b.unit)
    from_start, _ = model(tokens, model.initial_state(3))
    assert torch.equal(from_start, whole)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("conv", ["basic", "gated"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_left_padding_changes_no_real_token(conv, dtype, degree):
    model = CascadeLM(CascadeConfig(**SMALL, conv=conv, degree=degree, learned_x0=True), 11).to(dtype).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.2)
    lengths = (5, 1, 7)
    rows = [torch.randint(0, 11, (n,)) for n in lengths]
    results = []
    for pad in (0, 9):
        tokens, mask = torch.full((3, 7), pad), torch.zeros(3, 7, dtype=torch.bool)
        for i, row in enumerate(rows):
            tokens[i, 7 - len(row) :], mask[i, 7 - len(row) :] = row, True
        results.append((*model(tokens, mask=mask), mask))
    for logits, end, mask in results:
        for i, row in enumerate(rows):
            alone, alone_end = model(row[None])
            assert_close(logits[i][mask[i]], alone[0])
            for a, b in zip(end, alone_end, strict=True):
                assert_close(a.conv[i : i + 1], b.conv)
                assert_close(a.unit[i : i + 1], b.unit)
    assert torch.equal(results[0][0][results[0][2]], results[1][0][results[1][2]])


def test_padding_at_the_end_of_a_later_chunk_leaves_the_state_after_the_real_token():
    model = CascadeLM(CascadeConfig(**SMALL), 11).eval()
    tokens = torch.randint(0, 11, (2, 6))
    _, carried = model(tokens[:, :4])
    _, exact = model(tokens[:, 4:5], carried)
    _, padded = model(tokens[:, 4:], carried, mask=torch.tensor([[True, False]] * 2))
    for a, b in zip(padded, exact, strict=True):
        assert_close(a.conv, b.conv)
        assert_close(a.unit, b.unit)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("with_mask", [False, True])
def test_packed_documents_equal_separate_runs(with_mask, degree):
    model = Cascade(CascadeConfig(**SMALL, degree=degree, learned_x0=True)).double().eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.2)
    u = torch.randn(1, 6, 12, dtype=torch.float64)
    mask = torch.ones(1, 6, dtype=torch.bool) if with_mask else None
    y, end = model(u, mask=mask, cu_seqlens=torch.tensor([0, 3, 4, 6]))
    for i, part in enumerate((slice(0, 3), slice(3, 4), slice(4, 6))):
        alone, alone_end = model(u[:, part])
        assert_close(y[:, part], alone)
        for a, b in zip(end, alone_end, strict=True):
            assert_close(a.conv[i : i + 1], b.conv)
            assert_close(a.unit[i : i + 1], b.unit)
    spoiled = u.clone()
    spoiled[:, :3] = torch.nan
    assert_close(model(spoiled, mask=mask, cu_seqlens=torch.tensor([0, 3, 4, 6]))[0][:, 3:], y[:, 3:])


@pytest.mark.parametrize("options", [{"learned_x0": True}, {"degree": 2}, {"degree": 3, "learned_x0": True}], ids=str)
def test_reset_forgets_everything_before_it(options):
    model = Cascade(CascadeConfig(**SMALL, **options)).double().eval()
    u = torch.randn(2, 9, 12, dtype=torch.float64)
    reset = torch.zeros(2, 9, dtype=torch.bool)
    reset[0, 4] = True
    y, end = model(u, reset=reset)
    assert_close(y[:1, 4:], model(u[:1, 4:])[0])
    assert_close(y[1:], model(u[1:])[0])
    assert_close(end[0].conv[:1], model(u[:1, 4:])[1][0].conv)


def test_evaluation_repeats_itself_and_training_does_not():
    model = CascadeLM(CascadeConfig(**SMALL), 11)
    tokens = torch.randint(0, 11, (2, 30))
    assert not torch.equal(model(tokens)[0], model(tokens)[0])
    model.eval()
    assert torch.equal(model(tokens)[0], model(tokens)[0])


def test_calls_in_between_change_nothing_and_states_are_never_mutated():
    model = CascadeLM(CascadeConfig(**SMALL), 11).eval()
    a, b = torch.randint(0, 11, (2, 6)), torch.randint(0, 11, (5, 3))
    first, state_a = model(a)
    kept = [tuple(t.clone() for t in layer) for layer in state_a]
    _, state_b = model(b)
    again, _ = model(a)
    assert torch.equal(first, again)
    model(a, state_a)
    model(b, state_b)
    for layer, copy in zip(state_a, kept, strict=True):
        for t, c in zip(layer, copy, strict=True):
            assert torch.equal(t, c)


def test_state_can_be_selected_detached_and_moved():
    model = Cascade(CascadeConfig(**SMALL))
    u = torch.randn(3, 4, 12)
    _, carried = model(u)
    rows = torch.tensor([2, 0, 0, 1])
    y, _ = model(u[rows], state.select(carried, rows))
    assert y.shape == (4, 4, 12)
    assert torch.equal(state.select(carried, rows)[1].unit, carried[1].unit[rows])
    assert carried[0].unit.requires_grad
    assert not any(t.requires_grad for layer in state.detach(carried) for t in layer)
    assert {t.dtype for layer in state.to(carried, torch.float64) for t in layer} == {torch.float64}


def test_tied_and_untied_heads():
    config = CascadeConfig(**SMALL)
    tied = CascadeLM(config, 11)
    assert tied.head.weight is tied.embedding.weight
    untied = CascadeLM(CascadeConfig(**SMALL, tie_embeddings=False), 11)
    assert untied.head.weight.data_ptr() != untied.embedding.weight.data_ptr()
    assert CascadeLM(config, 11, n_outputs=4)(torch.zeros(1, 2, dtype=torch.long))[0].shape == (1, 2, 4)


def test_inits_are_what_their_names_say():
    config = CascadeConfig(d_model=400, n_layers=2, n_units=300, init="asymmetric")
    unit = Cascade(config).layers[1].unit
    assert unit.set.bias.unique().tolist() == [1.0]
    assert unit.reset.bias.unique().tolist() == [0.0]
    small = (2 / (5 * 400)) ** 0.5
    assert unit.reset.weight.std().item() == pytest.approx(small, rel=0.02)
    assert unit.set.weight.abs().max().item() == pytest.approx(400**-0.5, rel=0.01)
    assert unit.out.weight.std().item() == pytest.approx(2 / (2 * 300**0.5), rel=0.02)
    unit = Cascade(CascadeConfig(d_model=400, n_units=300)).layers[0].unit
    assert (unit.set.bias.unique().tolist(), unit.reset.bias.unique().tolist()) == ([-1.0], [1.0])
    assert unit.reset.weight.std().item() == pytest.approx(small, rel=0.02)
    for init in ("small_init", "kaiming"):
        unit = Cascade(CascadeConfig(d_model=400, n_units=300, init=init)).layers[0].unit
        assert unit.set.bias.unique().tolist() == unit.reset.bias.unique().tolist() == [0.0]
        assert unit.set.weight.std().item() == pytest.approx(unit.reset.weight.std().item(), rel=0.02)


@pytest.mark.parametrize("init", ["small_init", "kaiming", "asymmetric", "keep"])
def test_vector_units_start_ready_to_permute_or_to_keep_with_a_low_set_and_unequal_states(init):
    model = Cascade(CascadeConfig(**SMALL, degree=3, init=init))
    unit = model.layers[0].unit
    matrices = unit.reset.weight.detach().unflatten(0, (7, 3, 3))
    for over in (1, 2):
        assert_close(matrices[::2].sum(over), torch.zeros(4, 3, 12))
        assert matrices[1::2].sum(over).abs().min() > 0
    assert matrices[::2].std() > 0.05
    bias = unit.reset.bias.detach().unflatten(0, (7, 3, 3))
    assert not bias[::2].any()
    assert_close(bias[1::2], (2 * torch.eye(3) - 1).expand(3, 3, 3))
    assert unit.set.bias.unique().tolist() == [-1.0]
    learned = Cascade(CascadeConfig(**SMALL, degree=3, init=init, learned_x0=True))
    for start in (model.initial_state(2), learned.initial_state(2)):
        assert_close(start[0].unit.detach(), torch.tensor([-2 / 3, 0, 2 / 3]).repeat(2, 7))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 0}, "d_model must be a positive integer, got 0"),
        ({"n_units": 2.5}, "n_units must be an integer, got 2.5"),
        ({"conv": "wide"}, "conv must be one of basic, gated, got 'wide'"),
        ({"norm": "batchnorm"}, "norm must be one of layernorm, rmsnorm, none"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ({"expansion": float("nan")}, "expansion must be a positive number"),
        ({"degree": 0}, "degree must be a positive integer, got 0"),
        ({"output_gate": "False"}, "output_gate must be True or False, got 'False'"),
    ],
)
def test_bad_configurations_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        CascadeConfig(**options)


def test_bad_inputs_are_named():
    model = CascadeLM(CascadeConfig(**SMALL), 11)
    with pytest.raises(ValueError, match="tokens must be in 0 … 10, got values from 3 to 11"):
        model(torch.tensor([[3, 11]]))
    with pytest.raises(ValueError, match=r"integer tensor \[B, T\], got torch.float32 \(1, 2\)"):
        model(torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"integer tensor .* got torch.complex64"):
        model(torch.zeros(1, 2, dtype=torch.complex64))
    with pytest.raises(ValueError, match="tokens must be in 0 … 10"):
        next(model.generate(torch.tensor([[12]])))
    with pytest.raises(ValueError, match=r"\[B, T, d_model = 12\], got \(1, 2, 5\)"):
        model.cascade(torch.zeros(1, 2, 5))
    _, carried = model(torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"layer 0 must be tensors of .* for a batch of 1"):
        model(torch.zeros(1, 3, dtype=torch.long), carried)
    with pytest.raises(ValueError, match="the state has 2 layers, the model has 3"):
        model(torch.zeros(2, 3, dtype=torch.long), carried[:2])
    with pytest.raises(TypeError, match=r"the state must be torch\.float32 on cpu, got torch\.float64 on cpu"):
        model(torch.zeros(2, 3, dtype=torch.long), state.to(carried, torch.float64))
    with pytest.raises(TypeError, match="the state must consist of tensors, got NoneType"):
        model(torch.zeros(2, 3, dtype=torch.long), ((None, None),) * 3)
    with pytest.raises(TypeError, match=r"inputs must be torch\.float32 on cpu like .* got torch\.float64"):
        model.cascade(torch.zeros(1, 2, 12, dtype=torch.float64))
    with pytest.raises(ValueError, match="tokens must be in 0 … 10, got values from 3 to 11"):
        model.generate(torch.tensor([[3, 11]]))  # at once, not with the first token
    with pytest.raises(ValueError, match="integer tensor"):
        model.generate(torch.zeros(1, 2))


def test_an_embedding_that_does_more_is_called():
    """Hooks, subclasses and wrappers of the token embedding count, in sequences as for single tokens."""

    class Louder(torch.nn.Embedding):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return 3 * super().forward(tokens)

    model = CascadeLM(CascadeConfig(**SMALL, tie_embeddings=False), 11).eval()
    tokens = torch.randint(11, (1, 6))
    with torch.no_grad():
        scaled = CascadeLM(model.config, 11).eval()
        scaled.load_state_dict(model.state_dict())
        scaled.embedding.weight.mul_(3)
        wanted, _ = scaled(tokens)
        loud = Louder(11, model.config.d_model)
        loud.load_state_dict(model.embedding.state_dict())
        hooked = CascadeLM(model.config, 11).eval()
        hooked.load_state_dict(model.state_dict())
        hooked.embedding.register_forward_hook(lambda module, arguments, output: 3 * output)
        model.embedding = loud
        for other in (model, hooked):
            torch.testing.assert_close(other(tokens)[0], wanted, rtol=1e-5, atol=1e-5)
            carried, steps = None, []
            for token in tokens.split(1, dim=1):
                logits, carried = other(token, carried)
                steps.append(logits)
            torch.testing.assert_close(torch.cat(steps, 1), wanted, rtol=1e-5, atol=1e-5)


def test_documents_are_checked_once_a_call(monkeypatch):
    """Comparing boundaries waits for a GPU, so layers must not do it again."""
    calls = []
    real = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "any", lambda a, *args: calls.append(a) or torch.any(a, *args))
    model = CascadeLM(CascadeConfig(**SMALL), 11).eval()
    boundaries = torch.tensor([0, 2, 7])
    model(torch.zeros(1, 7, dtype=torch.long), cu_seqlens=boundaries)
    assert len(calls) == 1
    assert real(boundaries) == [0, 2, 7]


def test_no_tokens_give_no_logits_and_the_same_state():
    model = CascadeLM(CascadeConfig(**SMALL), 11).eval()
    _, carried = model(torch.zeros(2, 3, dtype=torch.long))
    logits, after = model(torch.zeros(2, 0, dtype=torch.long), carried)
    assert logits.shape == (2, 0, 11)
    for a, b in zip(after, carried, strict=True):
        assert torch.equal(a.conv, b.conv)
        assert torch.equal(a.unit, b.unit)


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("filler", [torch.nan, torch.inf])
def test_nothing_at_padding_reaches_a_gradient(filler, degree):
    model = Cascade(CascadeConfig(**SMALL, degree=degree)).eval()
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[0, :2], mask[1, 4:] = False, False
    u = torch.randn(2, 6, 12)
    gradients = []
    for value in (0.0, filler):
        y, _ = model(torch.where(mask[..., None], u, value), mask=mask)
        gradients.append(torch.autograd.grad(y[mask].square().sum(), list(model.parameters())))
    for a, b in zip(*gradients, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("flags", [(), ("mask",), ("reset",), ("mask", "reset")])
def test_no_steps_leave_the_state_as_it_is(flags):
    model = CascadeLM(CascadeConfig(**SMALL), 5).eval()
    _, state = model(torch.tensor([[1, 2], [3, 4]]))
    none = dict.fromkeys(flags, torch.zeros(2, 0, dtype=torch.bool))
    logits, after = model(torch.zeros(2, 0, dtype=torch.long), state, **none)
    assert logits.shape == (2, 0, 5)
    assert all(
        torch.equal(a, b) for one, other in zip(state, after, strict=True) for a, b in zip(one, other, strict=True)
    )
