"""The peers compute what they stand for."""

from __future__ import annotations

import pytest
import torch
from helpers import assert_same

from latchwork import CascadeConfig, CascadeLM, minmax_scan
from latchwork.bench.peers import MODEL_PEERS, SCAN_PEERS, lstm_of_size, read, size
from latchwork.bench.timing import attempt
from latchwork.models.architectures import body_size

VOCABULARY = 50
SMALL = 127_432
LIBRARIES = {
    "Mamba (mambapy)": "mambapy",
    "Mamba-2 (transformers)": "transformers",
    "xLSTM (transformers)": "transformers",
    "Transformer, GPT-2 (transformers)": "transformers",
}
peers = pytest.mark.parametrize("peer", MODEL_PEERS, ids=lambda peer: peer.name)


def built(peer):
    if peer.name in LIBRARIES:
        pytest.importorskip(LIBRARIES[peer.name], reason="pip install 'latchwork[baselines]'")
    return peer.build(VOCABULARY)


@pytest.mark.parametrize("name", SCAN_PEERS)
@pytest.mark.parametrize("time", [1, 2, 3, 31, 64])
def test_scan_peers_have_the_values_of_the_scan(name, time):
    r, s = torch.randn(2, 2, time, 5)
    assert_same(SCAN_PEERS[name](r, s), minmax_scan(r, s)[0])


@peers
def test_bodies_are_as_large_as_that_of_the_small_model(peer):
    allowed = 0.09 if "xLSTM" in peer.name else 0.015
    assert body_size(built(peer)) == pytest.approx(SMALL, rel=allowed)


def test_the_body_is_what_does_not_depend_on_the_vocabulary():
    for vocabulary in (10, 300):
        assert body_size(CascadeLM(CascadeConfig.small(), vocabulary)) == SMALL


@peers
def test_models_train(peer):
    tokens = torch.randint(0, VOCABULARY, (2, 16))
    logits, _ = built(peer).train()(tokens)
    assert logits.shape == (2, 16, VOCABULARY)
    logits.square().mean().backward()


@peers
@torch.no_grad()
def test_a_carried_state_stands_for_the_tokens_before(peer):
    model = built(peer)
    tokens = torch.randint(0, VOCABULARY, (1, 12))
    whole = model.train()(tokens)[0]
    model.eval()
    state, steps = None, []
    for t in range(tokens.shape[1]):
        logits, state = model(tokens[:, t : t + 1], state)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-4, rtol=1e-4)


@peers
@torch.no_grad()
def test_a_late_state_is_ready_for_one_more_token(peer):
    model = built(peer).eval()
    state = peer.after(model, 2048, VOCABULARY)
    assert model(torch.zeros(1, 1, dtype=torch.long), state)[0].isfinite().all()


@torch.no_grad()
def test_a_filled_cache_holds_the_context():
    model = built(MODEL_PEERS[-1]).eval()
    assert model.filled(3000).get_seq_length() == 3000


def test_reading_in_chunks_is_reading_at_once():
    model = CascadeLM(CascadeConfig(d_model=8, n_layers=2, n_units=4), VOCABULARY).eval()
    torch.manual_seed(1)
    tokens = torch.cat([torch.randint(0, VOCABULARY, (1, size)) for size in (16, 16, 5)], dim=1)
    torch.manual_seed(1)
    state = read(model, 37, VOCABULARY, chunk=16)
    for ours, expected in zip(state, model(tokens)[1], strict=True):
        torch.testing.assert_close(ours.unit, expected.unit)


def test_an_lstm_of_a_size_has_nearly_that_size():
    for parameters in (20_000, 131_932, 1_000_000):
        assert size(lstm_of_size(parameters, VOCABULARY, layers=2)) == pytest.approx(parameters, rel=0.03)


@pytest.mark.parametrize(("name", "library"), LIBRARIES.items())
def test_absent_libraries_are_named(no_libraries, name, library):
    peer = next(peer for peer in MODEL_PEERS if peer.name == name)
    model, note = attempt(lambda: peer.build(VOCABULARY))
    assert model is None
    assert note == f"{library} is not installed: pip install 'latchwork[baselines]'"
