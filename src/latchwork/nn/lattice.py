"""Lattice gates: meets and joins of rows of numbers, with more than 0 for true."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class LatticeGates(nn.Module):
    """Gates in groups; the gates of a group read earlier wires and are computed together.

    Nothing rounds. The gradient goes to the input that is chosen; ties share evenly. Wires are written in place, as
    there can be thousands: what autograd keeps for the way back are numbers of wires, and copies.

    Arguments:
        groups: ("and" | "or", the wires that each gate joins); their results are the next wires.
    """

    def __init__(self, groups: Sequence[tuple[str, Sequence[Sequence[int]]]]) -> None:
        super().__init__()
        self.kinds = [kind for kind, _ in groups]
        for number, (_, gates) in enumerate(groups):
            self.register_buffer(f"inputs{number}", padded(gates), persistent=False)

    def forward(self, wires: Tensor, filled: int) -> int:
        """Write the results behind the first `filled` wires [W, M], M values each; returns how many are filled then."""
        for number, kind in enumerate(self.kinds):
            inputs = getattr(self, f"inputs{number}")
            wires[filled : filled + len(inputs)] = joined(kind, wires, inputs)
            filled += len(inputs)
        return filled


def joined(kind: str, rows: Tensor, inputs: Tensor) -> Tensor:
    """The meet ("and") or join ("or") of rows: rows [W, M], inputs [G, K] their numbers; returns [G, M]."""
    if inputs.shape[1] == 1:
        return rows[inputs[:, 0]]
    chosen = rows.index_select(0, inputs.flatten()).view(*inputs.shape, rows.shape[1])
    return chosen.amin(1) if kind == "and" else chosen.amax(1)


def padded(gates: Sequence[Sequence[int]]) -> Tensor:
    """[G, K] the inputs of each gate; those with fewer than K have their last one again, which changes nothing."""
    most = max(len(gate) for gate in gates)
    return torch.tensor([[*gate, *[gate[-1]] * (most - len(gate))] for gate in gates])
