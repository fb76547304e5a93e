"""MinMax units behind the calling convention of `torch.nn.GRU`."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from latchwork.nn.init import even_start, vector_init_
from latchwork.nn.units import scan_units
from latchwork.ops.arguments import check_like


class MinMaxRNN(nn.Module):
    """Layers of MinMax units x_t = (R_t ⊗ x_{t−1}) ⊕ s_t that read R_t and s_t linearly from the layer below.

    Takes the place of `torch.nn.GRU`: same shapes, same order of layers and directions, packed sequences, carried
    states. Where no state is given, a sequence starts from x0, which is learned and begins at zeros for scalar units
    and spread evenly for vector units: equal states have nothing to permute.

    Arguments:
        input_size: number of values of an input.
        hidden_size: number of states of a layer and direction: hidden_size / degree units of this degree.
        num_layers: layers, each reading the one below.
        degree: states of a unit; 1 makes scalar units, n makes units that can permute n values.
        batch_first: batched inputs and outputs are [B, T, …] instead of [T, B, …]; states are not concerned.
        dropout: probability of dropping an output of a layer on its way to the next while training.
        bidirectional: a second set of units in every layer reads from the end to the beginning.
        bias: whether R and s have one.
        device, dtype: of the parameters.

    Source: arXiv 2605.06384, §4; `docs/decisions/0006-vector-init.md` on how the parameters start.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        degree: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers, "degree": degree}
        for name, value in sizes.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        if hidden_size % degree:
            raise ValueError(f"hidden_size must be a multiple of degree {degree}, got {hidden_size}")
        if not isinstance(batch_first, bool):
            raise TypeError(f"batch_first must be True or False, got {batch_first!r}")
        if not isinstance(dropout, (int, float)) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(f"dropout must be a number in [0, 1], got {dropout!r}")
        if dropout and num_layers == 1:
            warnings.warn(f"dropout {dropout} has no effect: it acts between layers, and num_layers is 1", stacklevel=2)
        self.input_size, self.hidden_size, self.num_layers, self.degree = input_size, hidden_size, num_layers, degree
        self.batch_first, self.dropout, self.bidirectional, self.bias = batch_first, dropout, bidirectional, bias
        ways = 2 if bidirectional else 1
        widths = [input_size] + [hidden_size * ways] * (num_layers - 1)
        self.units = nn.ModuleList(
            _Units(width, hidden_size, degree, bias, device, dtype) for width in widths for _ in range(ways)
        )

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for units in self.units:
            units.reset_parameters()  # type: ignore[operator]

    def flatten_parameters(self) -> None:
        """Nothing to do; code written for `torch.nn.GRU` calls it."""

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run all layers.

        Arguments:
            input: [T, B, input_size], [B, T, input_size] with batch_first, [T, input_size] for one sequence, or a
                `PackedSequence` of several.
            hx: [num_layers · ways, B, hidden_size] the states before the first step ([num_layers · ways, hidden_size]
                for one sequence), where ways is 2 if bidirectional, else 1; x0 by default.

        Returns:
            y like input, with hidden_size · ways values: the states of the last layer, forwards before backwards;
            h like hx, the states after the last step of every sequence, which for the backward units is the first
            one. h of layer i is at i · ways, the backward one after it.

        Raises:
            TypeError, ValueError: shapes, dtypes or devices that do not fit.
        """
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        self._check_input(input, (2, 3), "[T, B, {0}], [B, T, {0}] with batch_first, or [T, {0}] for one sequence")
        if input.ndim == 2:
            self._check_state(hx, ())
            y, h = self._run(input.unsqueeze(0), None if hx is None else hx.unsqueeze(1), None)
            return y.squeeze(0), h.squeeze(1)
        u = input if self.batch_first else input.transpose(0, 1)
        self._check_state(hx, u.shape[:1])
        y, h = self._run(u, hx, None)
        return y if self.batch_first else y.transpose(0, 1), h

    def _forward_packed(self, packed: PackedSequence, hx: Tensor | None) -> tuple[PackedSequence, Tensor]:
        """Sequences are run longest first, as they lie in the pack; states come and go in the caller's order."""
        data, batch_sizes, order, back = packed
        self._check_input(data, (2,), "packed from sequences of {0} values")
        self._check_state(hx, batch_sizes[:1].tolist())
        u, lengths = pad_packed_sequence(PackedSequence(data, batch_sizes), batch_first=True)
        if hx is not None and order is not None:
            hx = hx.index_select(1, order)
        y, h = self._run(u, hx, lengths)
        y = pack_padded_sequence(y, lengths, batch_first=True).data
        return PackedSequence(y, batch_sizes, order, back), h if back is None else h.index_select(1, back)

    def _run(self, u: Tensor, hx: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """u [B, T, input_size], hx [num_layers · ways, B, hidden_size] -> y [B, T, hidden_size · ways] and h."""
        mask = None if lengths is None else _steps(u) < lengths.to(u.device).unsqueeze(1)
        ways, last = 2 if self.bidirectional else 1, []
        for layer in range(self.num_layers):
            if layer:
                u = nn.functional.dropout(u, self.dropout, self.training)
            outputs = []
            for way in range(ways):
                i = layer * ways + way
                x, h = self.units[i](_reverse(u, lengths) if way else u, None if hx is None else hx[i], mask)
                outputs.append(_reverse(x, lengths) if way else x)
                last.append(h)
            u = torch.cat(outputs, dim=-1)
        return u, torch.stack(last)

    def _check_input(self, u: Tensor, dims: tuple[int, ...], wanted: str) -> None:
        if not isinstance(u, Tensor):
            raise TypeError(f"input must be a tensor or a PackedSequence, got {type(u).__name__}")
        if u.ndim not in dims or u.shape[-1] != self.input_size:
            raise ValueError(f"input must be {wanted.format(self.input_size)}, got {tuple(u.shape)}")
        check_like(u, "input", self.units[0].set.weight)  # type: ignore[union-attr,arg-type]

    def _check_state(self, hx: Tensor | None, batch: tuple[int, ...] | list[int]) -> None:
        if hx is None:
            return
        wanted = (len(self.units), *batch, self.hidden_size)
        if not isinstance(hx, Tensor) or tuple(hx.shape) != wanted:
            got = tuple(hx.shape) if isinstance(hx, Tensor) else type(hx).__name__
            raise ValueError(f"hx must be a tensor of {wanted} for this input, got {got}")
        like = self.units[0].set.weight  # type: ignore[union-attr]
        full = torch.promote_types(like.dtype, torch.float32)  # type: ignore[arg-type]
        if hx.device != like.device or hx.dtype not in (like.dtype, full):
            raise TypeError(f"hx must be {full} on {like.device}, got {hx.dtype} on {hx.device}")

    def extra_repr(self) -> str:
        """The arguments that are not their defaults."""
        options = {
            "num_layers": 1,
            "degree": 1,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
            "bias": True,
        }
        changed = [f"{name}={getattr(self, name)}" for name, usual in options.items() if getattr(self, name) != usual]
        return ", ".join([str(self.input_size), str(self.hidden_size), *changed])


class _Units(nn.Module):
    """The units of one layer and direction; their states are their output."""

    def __init__(self, width: int, states: int, degree: int, bias: bool, device, dtype) -> None:
        super().__init__()
        self.degree = degree
        self.reset = nn.Linear(width, states * degree, bias, device, dtype)
        self.set = nn.Linear(width, states, bias, device, dtype)
        self.x0 = nn.Parameter(torch.empty(states, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.reset.reset_parameters()
        self.set.reset_parameters()
        vector_init_(self.reset, self.set, self.degree)
        with torch.no_grad():
            self.x0.copy_(even_start(len(self.x0), self.degree, torch.float64, torch.device("cpu")))

    def forward(self, u: Tensor, state: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """u [B, T, width], state [B, D], mask [B, T] bool -> the states [B, T, D] and the last ones [B, D]."""
        return scan_units(self.reset(u), self.set(u), state, self.degree, x0=self.x0.expand(u.shape[0], -1), mask=mask)


def _steps(u: Tensor) -> Tensor:
    return torch.arange(u.shape[1], device=u.device)


def _reverse(u: Tensor, lengths: Tensor | None) -> Tensor:
    """Turn the steps of every sequence around, u [B, T, …], within its own length [B]; padding stays at the end."""
    if lengths is None:
        return u.flip(1)
    steps, lengths = _steps(u), lengths.to(u.device).unsqueeze(1)
    source = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return u.gather(1, source.unsqueeze(-1).expand_as(u))
