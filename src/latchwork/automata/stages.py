"""The stages of a compiled cascade as modules: gates, tables by letter, scans, reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from latchwork.automata.circuit import TRUE, TRUE_VALUE
from latchwork.automata.structure import Stage, Wiring
from latchwork.nn.lattice import LatticeGates, joined, padded
from latchwork.ops.scan import minmax_matrix_scan, minmax_scan
from latchwork.ops.table import SparseTable, minmax_table_scan, sparse_table


class StageUnits(nn.Module):
    """Units of one stage: what they do depends on units of earlier stages only."""

    terms: Tensor
    wires: Tensor
    own: Tensor

    def __init__(self, stage: Stage, n_letters: int) -> None:
        super().__init__()
        self.gates = LatticeGates(stage.gates)
        scalars = [unit for unit in stage.units if not unit.degree]
        vectors = [VectorUnit(unit, n_letters) for unit in stage.units if unit.degree]
        self.vectors = nn.ModuleList(vectors)
        self.units = stage.units
        self.n_scalars = len(scalars)
        self.coordinates = [unit.first for unit in scalars]
        self.coordinates += [vector.first + i for vector in vectors for i in range(vector.degree)]
        terms = [wire for unit in scalars for wire in unit.gates]
        ends = np.cumsum([len(unit.gates) for unit in scalars])
        if scalars:
            inputs = [range(end - len(unit.gates), end) for unit, end in zip(scalars, ends, strict=True)]
            self.register_buffer("terms", padded(inputs), persistent=False)
        self.register_buffer("wires", torch.tensor(terms, dtype=torch.int64), persistent=False)
        self.register_buffer("own", torch.tensor(self.coordinates, dtype=torch.int64), persistent=False)
        self.reset = nn.Parameter(torch.zeros(len(terms), n_letters))
        self.set = nn.Parameter(torch.zeros(len(terms), n_letters))
        self.before, self.after = Reads(stage.before, self.coordinates), Reads(stage.after, self.coordinates)
        spread = [vector.degree**2 * len(vector.wires) for vector in vectors if not vector.unconditional]
        self.elements = max(0, *spread, 2 * len(terms) + len(self.coordinates))

    def fill(self, tables: Sequence[tuple[np.ndarray, np.ndarray]], before: np.ndarray, after: np.ndarray) -> None:
        """Set the parameters: R and s of every unit, weight and bias of every read."""
        scalars = tables[: self.n_scalars]
        if scalars:
            self.reset.copy_(torch.from_numpy(np.concatenate([r for r, _ in scalars])))
            self.set.copy_(torch.from_numpy(np.concatenate([s for _, s in scalars])))
        for vector, (r, s) in zip(self._vectors, tables[self.n_scalars :], strict=True):
            vector.reset.copy_(torch.from_numpy(r))
            vector.set.copy_(torch.from_numpy(s))
        self.before.weight_bias.copy_(torch.from_numpy(before))
        self.after.weight_bias.copy_(torch.from_numpy(after))

    def forward(
        self, wires: Tensor, filled: int, letters: Tensor, state: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, int]:
        """The states after every letter, [coordinates, B, T], the last ones, and how many wires are filled then."""
        filled = self.gates(wires, filled)
        own = state[:, self.own]
        x, last = [], []
        if self.n_scalars:
            r, s = self._tables(wires, letters)
            here, end = minmax_scan(r, s, own[:, : self.n_scalars], mask=mask)
            x.append(here.permute(2, 0, 1))
            last.append(end)
        first = self.n_scalars
        for vector in self._vectors:
            here, end = vector(wires, letters, own[:, first : first + vector.degree], mask)
            x.append(here.permute(2, 0, 1))
            last.append(end)
            first += vector.degree
        rows = x[0] if len(x) == 1 else torch.cat(x)
        if len(self.before):
            earlier = torch.cat([own.to(rows.dtype).T.unsqueeze(2), rows], 2)[:, :, : letters.shape[1]]
            filled = self.before(earlier, wires, filled)
        return rows, torch.cat(last, 1), filled

    @property
    def _vectors(self) -> list[VectorUnit]:
        return cast("list[VectorUnit]", list(self.vectors))

    def _tables(self, wires: Tensor, letters: Tensor) -> tuple[Tensor, Tensor]:
        """r and s [B, T, D], joined over the terms of every unit."""
        flat, gates = letters.flatten(), wires.index_select(0, self.wires)
        found = []
        for table in (self.reset, self.set):
            rows = joined("or", torch.minimum(table.index_select(1, flat), gates), self.terms)
            found.append(rows.view(len(rows), *letters.shape).permute(1, 2, 0))
        return found[0], found[1]


class VectorUnit(nn.Module):
    """A vector unit: one term that is always true makes its tables decide alone, else gates say which of them count."""

    wires: Tensor

    def __init__(self, unit: Wiring, n_letters: int) -> None:
        super().__init__()
        self.first, self.degree = unit.first, unit.degree
        self.register_buffer("wires", torch.tensor(unit.gates), persistent=False)
        self.unconditional = unit.gates == (TRUE,)
        self.reset = nn.Parameter(torch.zeros(len(unit.gates), n_letters, unit.degree, unit.degree))
        self.set = nn.Parameter(torch.zeros(len(unit.gates), n_letters, unit.degree))
        self.ready: SparseTable | None = None  # while the parameters do not change

    def freeze(self) -> None:
        """Get the tables ready for many calls, until `ready` is None again."""
        if self.unconditional and self.reset.device.type == "cpu":
            self.ready = sparse_table(self.reset.detach()[0], self.set.detach()[0])

    def forward(self, wires: Tensor, letters: Tensor, state: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Its states after every letter [B, T, n] and the last ones [B, n]."""
        if self.unconditional:
            return minmax_table_scan(self.reset[0], self.set[0], letters, state, mask=mask, table=self.ready)
        gates = wires.index_select(0, self.wires).view(len(self.wires), *letters.shape, 1)
        s = torch.minimum(self.set[:, letters], gates).amax(0).unsqueeze(2)
        r = torch.minimum(self.reset[:, letters], gates.unsqueeze(-1)).amax(0).unsqueeze(2)
        x, last = minmax_matrix_scan(r, s, state.unsqueeze(1), mask=mask)
        return x.squeeze(2), last.squeeze(1)


class Reads(nn.Module):
    """Affine reads of single coordinates: on which side of a threshold a state lies."""

    rows: Tensor

    def __init__(self, coordinates: Sequence[int], own: Sequence[int]) -> None:
        super().__init__()
        place = {coordinate: at for at, coordinate in enumerate(own)}
        rows = torch.tensor([place[coordinate] for coordinate in coordinates], dtype=torch.int64)
        self.register_buffer("rows", rows, persistent=False)
        self.weight_bias = nn.Parameter(torch.zeros(len(coordinates), 2))

    def __len__(self) -> int:
        return len(self.rows)

    def forward(self, rows: Tensor, wires: Tensor, filled: int) -> int:
        """Read the states [coordinates, …] into the next wires [·, M]; returns how many are filled then."""
        end = filled + len(self)
        chosen = rows.index_select(0, self.rows).view(len(self), wires.shape[1])
        wires[filled:end] = chosen * self.weight_bias[:, :1] + self.weight_bias[:, 1:]
        return end


def new_wires(total: int, count: int, like: Tensor) -> Tensor:
    """Room for wires [total, count]; the first are false and true."""
    wires = like.new_empty(total, count)
    wires[0], wires[1] = -TRUE_VALUE, TRUE_VALUE
    return wires
