"""MinMaxRNN takes the place of torch.nn.GRU: shapes, packed sequences, states, and the habits of its users."""

from __future__ import annotations

import copy
import io
import warnings

import pytest
import torch
from helpers import assert_close
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence

from latchwork import MinMaxRNN, minmax_scan

LENGTHS = (4, 1, 7, 4)
KINDS = [(layers, degree, both) for layers in (1, 2, 3) for degree in (1, 2, 3) for both in (False, True)]


def make(layers: int = 2, degree: int = 2, both: bool = False, **options) -> MinMaxRNN:
    rnn = MinMaxRNN(5, 6, layers, degree, bidirectional=both, dtype=torch.float64, **options)
    for parameter in rnn.parameters():  # so that no start hides a mistake
        nn.init.normal_(parameter)
    return rnn


def rows(lengths=LENGTHS) -> list[torch.Tensor]:
    return [torch.randn(n, 5, dtype=torch.float64) for n in lengths]


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(("layers", "degree", "both"), KINDS)
def test_shapes_are_those_of_a_gru(layers, degree, both, batch_first):
    options = {"num_layers": layers, "bidirectional": both, "batch_first": batch_first}
    ours, theirs = MinMaxRNN(5, 6, degree=degree, **options), nn.GRU(5, 6, **options)
    for shape in ((4, 3, 5), (4, 5), (1, 1, 5)):
        x = torch.randn(shape)
        for state in (None, theirs(x)[1]):
            for a, b in zip(ours(x, state), theirs(x, state), strict=True):
                assert a.shape == b.shape
    packed = pack_sequence([torch.randn(n, 5) for n in LENGTHS], enforce_sorted=False)
    (y, h), (gru_y, gru_h) = ours(packed), theirs(packed)
    assert h.shape == gru_h.shape
    assert y.data.shape == gru_y.data.shape
    for a, b in zip(y[1:], gru_y[1:], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize(("layers", "degree", "both"), KINDS)
def test_packed_sequences_equal_each_alone(layers, degree, both, with_state):
    rnn, sequences = make(layers, degree, both), rows()
    h0 = torch.randn(layers * (1 + both), 4, 6, dtype=torch.float64) if with_state else None
    y, h = rnn(pack_sequence(sequences, enforce_sorted=False), h0)
    y, lengths = pad_packed_sequence(y)
    assert lengths.tolist() == list(LENGTHS)
    for i, row in enumerate(sequences):
        alone, end = rnn(row, None if h0 is None else h0[:, i])
        assert_close(y[: len(row), i], alone)
        assert_close(h[:, i], end)


def test_sorted_packs_and_one_without_padding_are_the_same():
    rnn, sequences = make(both=True), sorted(rows(), key=len, reverse=True)
    for a, b in zip(rnn(pack_sequence(sequences)), rnn(pack_sequence(sequences, enforce_sorted=False)), strict=True):
        assert torch.equal(a.data, b.data)
    same = torch.stack(rows((3, 3)))
    packed, whole = rnn(pack_sequence(list(same)))[0], rnn(same.transpose(0, 1))[0]
    assert_close(pad_packed_sequence(packed)[0], whole)


@pytest.mark.parametrize("both", [False, True])
def test_gradients_of_a_pack_are_the_sum_of_each_alone(both):
    rnn, sequences = make(both=both), rows()
    cotangents = torch.randn(4, 6 * (1 + both), dtype=torch.float64)
    y, h = rnn(pack_sequence(sequences, enforce_sorted=False))
    (pad_packed_sequence(y)[0].sum(0) * cotangents).sum().add(h.square().sum()).backward()
    packed = [p.grad.clone() for p in rnn.parameters()]
    rnn.zero_grad()
    for row, cotangent in zip(sequences, cotangents, strict=True):
        y, h = rnn(row)
        (y.sum(0) * cotangent).sum().add(h.square().sum()).backward()
    for together, parameter in zip(packed, rnn.parameters(), strict=True):
        assert_close(together, parameter.grad)


def test_not_a_number_in_one_sequence_stays_in_it():
    rnn, sequences = make(both=True), rows()
    clean = pad_packed_sequence(rnn(pack_sequence(sequences, enforce_sorted=False))[0])[0]
    sequences[1][:] = torch.nan
    y = pad_packed_sequence(rnn(pack_sequence(sequences, enforce_sorted=False))[0])[0]
    others = [0, 2, 3]
    assert torch.equal(y[:, others], clean[:, others])
    assert y[0, 1].isnan().all()


def test_one_layer_of_degree_one_is_the_scan():
    rnn = make(1, 1)
    x = torch.randn(9, 2, 5, dtype=torch.float64)
    (units,) = rnn.units
    batch_first = x.transpose(0, 1)
    expected, last = minmax_scan(units.reset(batch_first), units.set(batch_first), x0=units.x0)
    y, h = rnn(x)
    assert_close(y, expected.transpose(0, 1))
    assert_close(h[0], last)


def test_backward_units_read_from_the_end():
    rnn = make(1, 2, both=True)
    forwards, backwards = make(1, 2), make(1, 2)
    forwards.units[0].load_state_dict(rnn.units[0].state_dict())
    backwards.units[0].load_state_dict(rnn.units[1].state_dict())
    x = torch.randn(9, 2, 5, dtype=torch.float64)
    y, h = rnn(x)
    assert_close(y, torch.cat([forwards(x)[0], backwards(x.flip(0))[0].flip(0)], dim=-1))
    assert_close(h, torch.cat([forwards(x)[1], backwards(x.flip(0))[1]]))


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_carried_across_calls_gives_the_whole(degree, dtype):
    rnn = make(3, degree).to(dtype)
    x = torch.randn(20, 2, 5, dtype=dtype)
    whole, end = rnn(x)
    for sizes in ([7, 1, 12], [1] * 20):
        pieces, h = [], None
        for chunk in x.split(sizes):
            y, h = rnn(chunk, h)
            pieces.append(y)
        assert_close(torch.cat(pieces), whole)
        assert_close(h, end)


def test_gradients_reach_the_state_that_is_passed_in_and_the_input():
    rnn = make(1, 2)
    h0 = torch.randn(1, 2, 6, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    before = h0.detach().clone()
    assert torch.autograd.gradcheck(rnn, (x, h0))
    assert torch.equal(h0.detach(), before)


class Classifier(nn.Module):
    """As written for a GRU: the last states of both directions of the last layer decide."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 5, padding_idx=0)
        self.rnn = kind(input_size=5, hidden_size=6, num_layers=2, batch_first=True, dropout=0.1, bidirectional=True)
        self.head = nn.Linear(12, 3)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        self.rnn.flatten_parameters()
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        _, h = self.rnn(packed)
        return self.head(torch.cat([h[-2], h[-1]], dim=-1))


@pytest.mark.parametrize("kind", [MinMaxRNN, nn.GRU])
def test_a_classifier_written_for_a_gru_learns(kind):
    """The class is in the first token, and the sequences have different lengths."""
    model = Classifier(kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    lengths = torch.randint(1, 9, (32,))
    tokens = pad_sequence([torch.randint(1, 11, (int(n),)) for n in lengths], batch_first=True)
    for _ in range(60):
        loss = nn.functional.cross_entropy(model(tokens, lengths), tokens[:, 0] % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    assert (model(tokens, lengths).argmax(-1) == tokens[:, 0] % 3).float().mean() > 0.9


def test_copies_saved_weights_and_other_dtypes_compute_the_same():
    rnn = MinMaxRNN(5, 6, 2, 3, bidirectional=True)
    x = torch.randn(4, 3, 5)
    y, h = rnn(x)
    file = io.BytesIO()
    torch.save(rnn.state_dict(), file)
    file.seek(0)
    fresh = MinMaxRNN(5, 6, 2, 3, bidirectional=True)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    for other in (copy.deepcopy(rnn), fresh):
        assert torch.equal(other(x)[0], y)
        assert torch.equal(other(x)[1], h)
    double_y, double_h = rnn.double()(x.double())
    assert double_y.dtype == double_h.dtype == torch.float64
    assert_close(y, double_y.float())


def test_dropout_acts_between_layers_while_training_only():
    rnn = make(2, 2, dropout=0.5)
    x = torch.randn(8, 3, 5, dtype=torch.float64)
    assert not torch.equal(rnn(x)[0], rnn(x)[0])
    assert torch.equal(rnn(x)[1][0], rnn(x)[1][0])  # nothing is dropped before the first layer
    rnn.eval()
    without = make(2, 2)
    without.load_state_dict(rnn.state_dict())
    assert torch.equal(rnn(x)[0], without(x)[0])


def test_dropout_without_a_second_layer_warns_like_a_gru():
    for kind in (nn.GRU, MinMaxRNN):
        with pytest.warns(UserWarning, match=r"dropout"):
            kind(5, 6, dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MinMaxRNN(5, 6, num_layers=2, dropout=0.5)


def test_parameters_are_where_and_what_was_asked():
    assert {p.device.type for p in MinMaxRNN(5, 6, device="meta").parameters()} == {"meta"}
    assert {p.dtype for p in MinMaxRNN(5, 6, dtype=torch.float64).parameters()} == {torch.float64}
    count = sum(p.numel() for p in MinMaxRNN(5, 6, degree=2).parameters())
    assert count == 6 * (2 * (5 + 1) + (5 + 1) + 1)
    assert not [name for name, _ in MinMaxRNN(5, 6, degree=2, bias=False).named_parameters() if "bias" in name]
    rnn = MinMaxRNN(5, 6, degree=2)
    before = rnn.state_dict()["units.0.set.weight"].clone()
    rnn.reset_parameters()
    assert not torch.equal(rnn.state_dict()["units.0.set.weight"], before)
    assert repr(MinMaxRNN(5, 6, degree=2)).startswith("MinMaxRNN(\n  5, 6, degree=2\n")


def test_a_compiled_rnn_computes_the_same():
    rnn = MinMaxRNN(5, 6, 2, 3, bidirectional=True)
    x = torch.randn(4, 3, 5)
    assert torch.equal(torch.compile(rnn, backend="aot_eager", fullgraph=True)(x)[0], rnn(x)[0])


def test_no_steps_give_the_state_back():
    rnn = make(2, 2)
    h0 = torch.randn(2, 3, 6, dtype=torch.float64)
    y, h = rnn(torch.zeros(0, 3, 5, dtype=torch.float64), h0)
    assert y.shape == (0, 3, 6)
    assert torch.equal(h, h0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 6), "input_size must be a positive integer, got 0"),
        ((5, 6, 1.0), "num_layers must be a positive integer, got 1.0"),
        ((5, 6, 1, True), "degree must be a positive integer, got True"),  # the fourth argument of a GRU is bias
        ((5, 6, 1, 4), "hidden_size must be a multiple of degree 4, got 6"),
        ((5, 6, 2, 1, False, 1.5), r"dropout must be a number in \[0, 1\], got 1.5"),
        ((5, 6, 2, 1, False, "no"), r"dropout must be a number in \[0, 1\], got 'no'"),
    ],
)
def test_bad_sizes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MinMaxRNN(*arguments)


@pytest.mark.parametrize(
    ("x", "h0", "message"),
    [
        (torch.zeros(4, 2, 3), None, r"\[T, B, 5\].*got \(4, 2, 3\)"),
        (torch.zeros(5), None, r"\[T, 5\] for one sequence, got \(5,\)"),
        (torch.zeros(4, 2, 5), torch.zeros(2, 2, 6), r"hx must be a tensor of \(1, 2, 6\).*got \(2, 2, 6\)"),
        (torch.zeros(4, 2, 5), torch.zeros(1, 6), r"hx must be a tensor of \(1, 2, 6\).*got \(1, 6\)"),
        (torch.zeros(4, 5), torch.zeros(1, 1, 6), r"hx must be a tensor of \(1, 6\).*got \(1, 1, 6\)"),
        (torch.zeros(4, 2, 5), (torch.zeros(1, 2, 6),) * 2, r"hx must be a tensor .*got tuple"),
        (pack_sequence([torch.zeros(3, 4)]), None, r"packed from sequences of 5 values, got \(3, 4\)"),
        (pack_sequence([torch.zeros(3, 5)]), torch.zeros(1, 2, 6), r"hx must be a tensor of \(1, 1, 6\)"),
        (torch.zeros(4, 2, 5, dtype=torch.float64), None, "must be torch.float32 on cpu like the parameters"),
        (torch.zeros(4, 2, 5, dtype=torch.long), None, "must be torch.float32 .* got torch.int64"),
        ([[1.0] * 5], None, "input must be a tensor or a PackedSequence, got list"),
    ],
)
def test_inputs_and_states_that_do_not_fit_are_named(x, h0, message):
    with pytest.raises((TypeError, ValueError), match=message):
        MinMaxRNN(5, 6)(x, h0)
