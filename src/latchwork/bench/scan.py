"""Is the scan as fast as memory lets it be, and how much faster than other ways to compute it?

The kernels write into outputs that are there before the call, as their limits do; what is compared with peers, or
through autograd, allocates its results like everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from latchwork.bench.peers import SCAN_PEERS, ScanPeer
from latchwork.bench.rows import Row
from latchwork.bench.timing import NOT_SAID, attempt, compare, peak_bytes
from latchwork.ops import cpu
from latchwork.ops.scan import minmax_last, minmax_scan

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Sizes:
    """Shapes [B, T, D]."""

    scalar: tuple[Shape, ...]
    """For scalar units, forward and backward; the second one also for the variants of the scan."""
    vector: Shape
    """With the values of R in a step, U·n², in place of D: every degree n reads as much of R."""
    peers: Shape
    """Where the peers finish soon."""


FULL = Sizes(
    scalar=((64, 512, 40), (8, 1024, 1456), (1, 1 << 20, 64), (1, 1 << 22, 8)),
    vector=(8, 1024, 1024),
    peers=(8, 1024, 64),
)
QUICK = Sizes(scalar=((4, 64, 40), (2, 64, 96)), vector=(2, 64, 64), peers=(2, 64, 8))
DEGREES = (2, 4, 8)


def bench_scan(sizes: Sizes = FULL, repeats: int = 40) -> Iterator[Row]:
    """Seconds and bytes of the scan against the limits of memory and arithmetic, and against peers."""
    for shape in sizes.scalar:
        yield _forward(shape, repeats)
        yield _backward(shape, repeats)
    main = sizes.scalar[1]
    yield from _bfloat16(main, repeats)
    yield _last_only(main, repeats)
    yield _memory(main)
    for degree in DEGREES:
        yield from _vector(sizes.vector, degree, repeats)
    yield _call(repeats)
    for name, peer in SCAN_PEERS.items():
        yield from _peer(sizes.peers, name, peer, repeats)


class _Scan:
    """The kernels on data of one shape and dtype, with outputs that are there before a call."""

    def __init__(self, shape: Shape, dtype: torch.dtype = torch.float32) -> None:
        self.r, self.s, self.grad_x = (torch.randn(shape).to(dtype) for _ in range(3))
        self.x, self.grad_r, self.grad_s = (torch.empty_like(self.r) for _ in range(3))
        self.zeros = torch.zeros(shape[0], shape[2])
        self.forward()

    def forward(self) -> object:
        return cpu.scan(self.r, self.s, self.zeros, self.zeros, None, None, out=self.x)

    def backward(self) -> object:
        return cpu.scan_backward(
            *(self.grad_x, self.zeros, self.r, self.s, self.zeros, self.zeros, None, None, self.x),
            out=(self.grad_r, self.grad_s),
        )

    def read_two_write_one(self) -> object:
        """The bytes of `forward`."""
        return torch.add(self.r, self.s, out=self.x)

    def read_four_write_two(self) -> object:
        """The bytes of `backward`, which reads r, s, x and the gradient of x, and writes those of r and s."""
        torch.add(self.r, self.s, out=self.grad_r)
        return torch.add(self.x, self.grad_x, out=self.grad_s)


def _forward(shape: Shape, repeats: int) -> Row:
    scan = _Scan(shape)
    ours, limit = compare(scan.forward, scan.read_two_write_one, repeats)
    return Row(what="forward", shape=shape, ours=ours, against="torch.add(r, s, out=x)", theirs=limit)


def _backward(shape: Shape, repeats: int) -> Row:
    scan = _Scan(shape)
    ours, limit = compare(scan.backward, scan.read_four_write_two, repeats)
    return Row(what="backward", shape=shape, ours=ours, against="torch.add twice", theirs=limit)


def _bfloat16(shape: Shape, repeats: int) -> Iterator[Row]:
    half, full = _Scan(shape, torch.bfloat16), _Scan(shape)
    for what, ours, theirs in (
        ("forward", half.forward, full.forward),
        ("backward", half.backward, full.backward),
    ):
        mine, other = compare(ours, theirs, repeats)
        yield Row(what=what, shape=shape, dtype="bfloat16", ours=mine, against="the same in float32", theirs=other)


def _last_only(shape: Shape, repeats: int) -> Row:
    scan = _Scan(shape)
    ours, theirs = compare(lambda: minmax_last(scan.r, scan.s), scan.forward, repeats)
    return Row(what="last state only", shape=shape, ours=ours, against="forward, every state", theirs=theirs)


def _memory(shape: Shape) -> Row:
    r, s = (torch.randn(shape, requires_grad=True) for _ in range(2))
    upstream = torch.randn(shape)

    def both() -> object:
        return torch.autograd.grad(minmax_scan(r, s)[0], (r, s), upstream)

    both()  # compiles
    tensor, grown = r.numel() * r.element_size(), peak_bytes(both)
    return Row(
        what="peak memory, forward and backward",
        shape=shape,
        unit="B",
        ours=None if grown is None else 3 * tensor + grown,  # r, s and the gradient of x are there before the call
        against="inputs + outputs + gradients",
        theirs=6 * tensor,
        note=NOT_SAID if grown is None else "",
    )


def _vector(sizes: Shape, degree: int, repeats: int) -> Iterator[Row]:
    batch, time, values = sizes
    units = values // degree**2
    r, s = torch.randn(batch, time, units, degree, degree), torch.randn(batch, time, units, degree)
    x, zeros = torch.empty_like(s), torch.zeros(batch, units, degree)
    what, shape = f"forward, degree {degree}", tuple(s.shape)

    def scan(r: Tensor, s: Tensor, x: Tensor) -> Callable[[], object]:
        return lambda: cpu.scan(r, s, zeros, zeros, None, None, out=x)

    def same_bytes() -> object:
        return r.amax(), x.copy_(s)

    ours, limit = compare(scan(r, s, x), same_bytes, repeats)
    yield Row(what=what, shape=shape, ours=ours, against="R.amax() and x.copy_(s)", theirs=limit)

    # one step again and again is read from the first-level cache; a quarter of the steps, so that x stays in cache too
    short = max(1, time // 4)
    first_r, first_s = r[:, :1].expand(-1, short, -1, -1, -1), s[:, :1].expand(-1, short, -1, -1)
    from_cache = scan(first_r, first_s, torch.empty_like(first_s).contiguous())
    ours, limit = compare(scan(r, s, x), from_cache, repeats)
    limit = None if limit is None else limit * time / short
    yield Row(what=what, shape=shape, ours=ours, against="the same arithmetic on values in cache", theirs=limit)


def _call(repeats: int) -> Row:
    shape = (1, 1, 40)
    r, s = torch.randn(shape), torch.randn(shape)
    ours, theirs = compare(lambda: minmax_scan(r, s), lambda: torch.add(r, s), 100 * repeats, in_a_row=100)
    return Row(what="one call", shape=shape, ours=ours, against="a call of torch.add(r, s)", theirs=theirs)


def _peer(shape: Shape, name: str, peer: ScanPeer, repeats: int) -> Iterator[Row]:
    r, s = (torch.randn(shape, requires_grad=True) for _ in range(2))
    upstream = torch.randn(shape)

    def ours(r: Tensor, s: Tensor) -> Tensor:
        return minmax_scan(r, s)[0]

    def forward(scan: ScanPeer) -> Callable[[], object]:
        return lambda: scan(r.detach(), s.detach())

    def both(scan: ScanPeer) -> Callable[[], object]:
        return lambda: torch.autograd.grad(scan(r, s), (r, s), upstream)

    for what, way in (("forward", forward), ("forward and backward", both)):
        _, note = attempt(way(peer))
        mine, other = compare(way(ours), None if note else way(peer), repeats)
        yield Row(what=what, shape=shape, ours=mine, against=name, theirs=other, note=note)
