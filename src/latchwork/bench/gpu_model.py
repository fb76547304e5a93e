"""How fast does the paper's language model train and decode on a GPU, and on how long a context can it train?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.bench.gpu import compare_on_device, copy_of
from latchwork.bench.rows import Row
from latchwork.bench.timing import attempt, compare
from latchwork.models.cascade_lm import CascadeLM
from latchwork.nn.config import CascadeConfig
from latchwork.state import leaves

GPT2 = "transformers GPT-2, sdpa"


@dataclass(frozen=True)
class Sizes:
    config: CascadeConfig
    peer: dict[str, int] = field(default_factory=dict)
    """What GPT-2 has else than its smallest model, of 124M parameters."""
    vocabulary: int = 50257
    batch: tuple[int, int] = (8, 1024)
    """Sequences and steps of an update."""
    contexts: tuple[int, int] = (1024, 1 << 20)
    """The shortest and the longest context that is tried, one sequence an update."""


FULL = Sizes(CascadeConfig.paper_lm(dropout=0.0))
QUICK = Sizes(
    CascadeConfig(d_model=16, n_units=8, dropout=0.0),
    peer={"n_embd": 16, "n_layer": 2, "n_head": 2},
    vocabulary=50,
    batch=(2, 32),
    contexts=(32, 64),
)


def bench_gpu_model(sizes: Sizes = FULL, repeats: int = 50, device: str = "cuda") -> Iterator[Row]:
    """Training in bfloat16 against GPT-2, a token against a copy of the weights, memory of an update on long contexts.

    On other devices than GPUs models are not compiled, a token is no CUDA graph, and memory is not measured.
    """
    yield _training(sizes, repeats, torch.device(device))
    yield _decoding(sizes, repeats, torch.device(device))
    if torch.device(device).type == "cuda":
        yield _context(sizes)


def _training(sizes: Sizes, repeats: int, device: torch.device) -> Row:
    tokens = torch.randint(sizes.vocabulary, sizes.batch, device=device)
    ours = _trainer(_cascade(sizes).to(device), tokens, compiled=device.type == "cuda")

    def rival() -> Callable[[], None]:
        step = _trainer(_gpt2(sizes, tokens.shape[1]).to(device), tokens, compiled=device.type == "cuda")
        step()
        return step

    theirs, note = attempt(rival)
    if theirs is None:
        seconds: tuple[float, float | None] = (_compare(device)(ours, ours, repeats)[0], None)
    else:
        seconds = _compare(device)(ours, theirs, repeats)
    return Row(
        what="training, autocast to bfloat16",
        shape=sizes.batch,
        unit="s/token",
        ours=seconds[0] / tokens.numel(),
        against=GPT2,
        theirs=None if seconds[1] is None else seconds[1] / tokens.numel(),
        note=note,
    )


@torch.no_grad()
def _decoding(sizes: Sizes, repeats: int, device: torch.device) -> Row:
    model = _cascade(sizes).to(device, torch.bfloat16).eval()
    token = torch.zeros(1, 1, dtype=torch.long, device=device)
    _, state = model(token)

    def step() -> None:
        _, after = model(token, state)
        for old, new in zip(leaves(state), leaves(after), strict=True):
            old.copy_(new)

    run = _graph(step) if device.type == "cuda" else step
    ours, theirs = _compare(device)(run, copy_of(list(model.parameters())), repeats)
    return Row(
        what="one token" + (", CUDA graph" if device.type == "cuda" else ""),
        shape=(1, 1),
        dtype="bfloat16",
        unit="s/token",
        ours=ours,
        against="a copy of as many bytes as the weights",
        theirs=theirs,
    )


def _context(sizes: Sizes) -> Row:
    """Memory of an update on the longest context that both models train on, and how far each goes."""
    ours = dict(_peaks(sizes, lambda length: _cascade(sizes)))
    theirs, note = attempt(lambda: dict(_peaks(sizes, lambda length: _gpt2(sizes, length))))
    both = sorted(ours.keys() & (theirs or {}).keys())
    length = both[-1] if both else max(ours)
    return Row(
        what="memory of an update, autocast to bfloat16",
        shape=(1, length),
        unit="B",
        ours=ours[length],
        against=GPT2,
        theirs=theirs[length] if theirs and both else None,
        note=note,
        details={"our_longest_context": max(ours), **({"their_longest_context": max(theirs)} if theirs else {})},
    )


def _peaks(sizes: Sizes, build: Callable[[int], nn.Module]) -> Iterator[tuple[int, int]]:
    """Contexts, each twice the one before, and the most bytes of the device in use; until memory is full."""
    length, longest = sizes.contexts
    while length <= longest:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        try:
            tokens = torch.randint(sizes.vocabulary, (1, length), device="cuda")
            _trainer(build(length).to("cuda"), tokens, compiled=False)()
        except torch.OutOfMemoryError:
            return
        yield length, torch.cuda.max_memory_allocated()
        length *= 2


def _cascade(sizes: Sizes) -> nn.Module:
    return CascadeLM(sizes.config, sizes.vocabulary)


def _gpt2(sizes: Sizes, length: int) -> nn.Module:
    import transformers

    settings: dict[str, Any] = {"vocab_size": sizes.vocabulary, "n_positions": length, **sizes.peer}
    settings |= {"attn_implementation": "sdpa", "use_cache": False}
    settings |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings))


def _trainer(model: nn.Module, tokens: Tensor, *, compiled: bool) -> Callable[[], None]:
    """An update of a model whose first result is logits [B, T, V]: the next token is to be said at every step."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    forward = torch.compile(model) if compiled else model

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(tokens.device.type, torch.bfloat16):
            logits = forward(tokens)[0]
        F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return step


def _graph(step: Callable[[], None]) -> Callable[[], None]:
    """The same work as one launch."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # a graph may not be the first to use what is allocated lazily
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _compare(device: torch.device) -> Callable[..., tuple[float, Any]]:
    return compare_on_device if device.type == "cuda" else compare
