"""What every process of tests/ops/test_ranks.py does, started by torchrun: a split sequence beside a whole one."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from latchwork import CascadeConfig, CascadeLM, minmax_matrix_scan, minmax_scan
from latchwork.training.sharding import shard, whole

BATCH, UNITS = 3, 4


def pieces(total: int, uneven: bool) -> list[int]:
    """Steps of every rank; where they are uneven the second rank has none."""
    size = dist.get_world_size()
    if not uneven:
        return [*[total // size] * (size - 1), total - total // size * (size - 1)]
    cuts = [*[0, 3, 3, 4, total][:size], total]
    return [b - a for a, b in itertools.pairwise(cuts)]


def mine(a: Tensor, sizes: list[int]) -> Tensor:
    return a.split(sizes, dim=1)[dist.get_rank()]


def summed(a: Tensor) -> Tensor:
    a = a.clone()
    dist.all_reduce(a)
    return a


def check_scan(degree: int, dtype: torch.dtype, flags: str, uneven: bool, backend: str) -> None:
    generator = torch.Generator().manual_seed(degree)

    def random(*shape: int) -> Tensor:
        # few values, so that operands tie
        return torch.randint(-4, 5, shape, generator=generator).to(dtype) / 2

    unit = (UNITS,) if degree == 1 else (UNITS, degree)
    total = 16
    r = random(BATCH, total, *unit) if degree == 1 else random(BATCH, total, UNITS, degree, degree)
    s, state, x0 = random(BATCH, total, *unit) - 1, random(BATCH, *unit), random(*unit)
    mask = torch.rand(BATCH, total, generator=generator) < 0.5
    mask[0, :8] = False
    reset = torch.rand(BATCH, total, generator=generator) < 0.15
    mask, reset = (mask if "mask" in flags else None), (reset if "reset" in flags else None)
    grad_x, grad_last = random(BATCH, total, *unit), random(BATCH, *unit)
    scan = minmax_scan if degree == 1 else minmax_matrix_scan

    def leaves(*tensors: Tensor) -> list[Tensor]:
        return [a.clone().requires_grad_() for a in tensors]

    whole = leaves(r, s, state, x0)
    x, last = scan(*whole[:3], x0=whole[3], mask=mask, reset=reset, backend=backend)
    torch.autograd.backward((x, last), (grad_x, grad_last.to(last.dtype)))

    sizes = pieces(total, uneven)
    own = leaves(mine(r, sizes), mine(s, sizes), state, x0)
    given = {"mask": mask, "reset": reset}
    given = {name: None if flag is None else mine(flag, sizes) for name, flag in given.items()}
    y, end = scan(*own[:3], x0=own[3], **given, backend=backend, process_group=dist.group.WORLD)
    assert torch.equal(y, mine(x, sizes)), (degree, flags)
    assert torch.equal(end, last)
    # the gradient of the last state comes from one rank only, as of a loss that one rank computes
    share = grad_last if dist.get_rank() == dist.get_world_size() - 1 else torch.zeros_like(grad_last)
    torch.autograd.backward((y, end), (mine(grad_x, sizes), share.to(end.dtype)))
    for found, wanted in (
        (own[0].grad, mine(whole[0].grad, sizes)),
        (own[1].grad, mine(whole[1].grad, sizes)),
        (summed(own[2].grad), whole[2].grad),
        (summed(own[3].grad), whole[3].grad),
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def check_nan() -> None:
    """NaN goes through ranks as through steps; a reset forgets it."""
    r, s = torch.ones(2, 8, 1), torch.zeros(2, 8, 1)
    r[0, 1] = torch.nan
    reset = torch.zeros(2, 8, dtype=torch.bool)
    reset[0, 7] = True
    state = torch.full((2, 1), torch.nan)
    x, last = minmax_scan(r, s, state, reset=reset)
    sizes = pieces(8, uneven=False)
    parts = mine(r, sizes), mine(s, sizes), state
    y, end = minmax_scan(*parts, reset=mine(reset, sizes), process_group=dist.group.WORLD)
    torch.testing.assert_close(y, mine(x, sizes), equal_nan=True, rtol=0, atol=0)
    torch.testing.assert_close(end, last, equal_nan=True, rtol=0, atol=0)


def check_nan_in_vectors(degree: int) -> None:
    """A NaN in one value of a vector stays there where a rank has nothing but padding, or nothing at all."""
    generator = torch.Generator().manual_seed(degree)
    for uneven in (False, True):
        sizes = pieces(16, uneven)
        for _ in range(40):
            r = torch.randn(BATCH, 16, UNITS, degree, degree, generator=generator)
            s, state = (torch.randn(*shape, UNITS, degree, generator=generator) for shape in ((BATCH, 16), (BATCH,)))
            for a, share in ((r, 0.005), (s, 0.005), (state, 0.3)):
                a[torch.rand(a.shape, generator=generator) < share] = torch.nan
            mask = torch.rand(BATCH, 16, generator=generator) < 0.5
            # of every sequence some ranks have padding only
            padded = torch.rand(BATCH, len(sizes), generator=generator) < 0.5
            mask &= ~padded.repeat_interleave(torch.tensor(sizes), dim=1)
            reset = torch.rand(BATCH, 16, generator=generator) < 0.03
            x, last = minmax_matrix_scan(r, s, state, mask=mask, reset=reset)
            y, end = minmax_matrix_scan(
                *(mine(r, sizes), mine(s, sizes), state),
                mask=mine(mask, sizes),
                reset=mine(reset, sizes),
                process_group=dist.group.WORLD,
            )
            torch.testing.assert_close(y, mine(x, sizes), equal_nan=True, rtol=0, atol=0)
            torch.testing.assert_close(end, last, equal_nan=True, rtol=0, atol=0)


def check_other_group() -> None:
    """A process that is not in the group is told so."""
    group, r = dist.new_group([0]), torch.zeros(1, 2, 1)
    if dist.get_rank() == 0:
        assert torch.equal(minmax_scan(r, r, process_group=group)[0], r)
        return
    with pytest.raises(ValueError, match=f"process {dist.get_rank()} is not in the process group"):
        minmax_scan(r, r, process_group=group)


def check_cascade(degree: int, conv: str, flags: str) -> None:
    torch.manual_seed(1)
    config = CascadeConfig(d_model=12, n_layers=3, n_units=6, degree=degree, conv=conv, learned_x0=True, dropout=0.0)
    model = CascadeLM(config, 9, 5).double()
    tokens, targets = torch.randint(9, (BATCH, 16)), torch.randint(5, (BATCH, 16))
    _, state = model(torch.randint(9, (BATCH, 3)))
    state = tuple(type(layer)(*(a.detach() for a in layer)) for layer in state)
    mask = torch.rand(BATCH, 16) < 0.5
    mask[0, :8] = False
    reset = torch.rand(BATCH, 16) < 0.2
    given = {"mask": mask if "mask" in flags else None, "reset": reset if "reset" in flags else None}
    for start in (None, state):
        model.zero_grad()
        logits, after = model(tokens, start, **given)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
        (loss + sum(a.square().sum() for layer in after for a in layer)).backward()
        wanted = gradients(model)
        model.zero_grad()
        sizes = pieces(16, uneven=True)
        own = {name: None if flag is None else mine(flag, sizes) for name, flag in given.items()}
        found, end = model(mine(tokens, sizes), start, **own, process_group=dist.group.WORLD)
        real = mine(mask, sizes) if "mask" in flags else slice(None)
        torch.testing.assert_close(found[real], mine(logits, sizes)[real], rtol=1e-12, atol=1e-12)
        for a, b in zip(end, after, strict=True):
            for one, other in zip(a, b, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        loss = F.cross_entropy(found.flatten(0, 1), mine(targets, sizes).flatten(), reduction="sum")
        if dist.get_rank() == 0:  # one rank only reads the last state, and the rank without steps nothing at all
            loss = loss + sum(a.square().sum() for layer in end for a in layer)
        loss.backward()
        for name, grad in gradients(model).items():
            torch.testing.assert_close(
                summed(grad), wanted[name], rtol=1e-9, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}"
            )


def gradients(model: CascadeLM) -> dict[str, Tensor]:
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}


def check_training(sharded: bool) -> None:
    """Sequences over pairs of ranks, batches over the pairs, weights whole or in shards, beside one process."""
    size, rank = dist.get_world_size(), dist.get_rank()
    if size % 2:
        return
    groups = [dist.new_group([first, first + 1]) for first in range(0, size, 2)]
    group, row, rows = groups[rank // 2], rank // 2, size // 2
    config = CascadeConfig(d_model=12, n_layers=2, n_units=6, dropout=0.0)
    torch.manual_seed(2)
    alone = CascadeLM(config, 7, 4)
    torch.manual_seed(2)
    model = CascadeLM(config, 7, 4)
    if sharded:
        shard(model)
    else:
        model = DistributedDataParallel(model)
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-3) for m in (alone, model)]
    for step in range(20):
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(7, (4, 24), generator=generator)
        targets = torch.randint(4, (4, 24), generator=generator)
        optimizers[0].zero_grad()
        logits, _ = alone(tokens)
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        optimizers[0].step()
        half = slice(12 * (rank % 2), 12 * (rank % 2) + 12)
        batch = slice(row * 4 // rows, (row + 1) * 4 // rows)
        optimizers[1].zero_grad()
        logits, _ = model(tokens[batch, half], process_group=group)
        loss = F.cross_entropy(logits.flatten(0, 1), targets[batch, half].flatten(), reduction="sum") / targets.numel()
        (size * loss).backward()  # data parallelism takes the mean over processes
        optimizers[1].step()
    for one, other in zip(alone.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.detach(), whole(other), rtol=1e-5, atol=1e-5)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for degree, dtype, flags, uneven in itertools.product(
        (1, 2), (torch.float32, torch.float64), ("", "mask", "reset", "mask reset"), (False, True)
    ):
        check_scan(degree, dtype, flags, uneven, "auto")
    check_scan(3, torch.float64, "mask reset", True, "torch")
    check_scan(1, torch.float64, "reset", True, "reference")
    check_nan()
    check_nan_in_vectors(2)
    check_nan_in_vectors(3)
    check_other_group()
    for degree, conv, flags in ((1, "basic", ""), (1, "gated", "mask reset"), (2, "basic", "mask")):
        check_cascade(degree, conv, flags)
    for sharded in (False, True):
        check_training(sharded)
    dist.destroy_process_group()
    print("done")


main()
