"""Networks that are automata: a compiled cascade runs on the scan and answers for every prefix of every word."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from latchwork.automata.build import Blueprint
from latchwork.automata.dfa import OTHER, BoolArray, encode, letters, shown
from latchwork.automata.machine import integers
from latchwork.automata.stages import StageUnits, VectorUnit, new_wires
from latchwork.automata.structure import Structure
from latchwork.files import write_bytes
from latchwork.nn.lattice import LatticeGates
from latchwork.ops.arguments import check_flags

_FORMAT = "latchwork-cascade-1"
_BLOCK_ELEMENTS = 1 << 22  # of all wires, or of R, over the steps that are computed together


class CompiledCascade(nn.Module):
    """A cascade that recognises a language exactly; made by `compile` or `load`.

    It reads letters and gives scores: for an automaton one, more than 0 after words that are accepted; for a Moore
    machine one for each output, the largest for the output that it gives. All tables, thresholds and the first state
    are parameters, so it can be trained on, and it keeps what it was compiled to until then.

    States lie in [−1, 1] and gates at ±2 or beyond, so nothing ties where a state is kept or permuted: its gradient is
    exactly 1. Scores and states are the same for every cut into calls, on every device and in every dtype.

    Attributes:
        alphabet: the letters, in the order of their numbers.
        other: whether the last letter stands for every symbol that is not in the alphabet.
        labels: what each score stands for, of a Moore machine; None for an automaton.
        structure: gates and units, without numbers.
    """

    place: Tensor
    outputs: Tensor

    def __init__(
        self,
        structure: Structure,
        alphabet: Iterable[Hashable],
        other: bool = False,
        labels: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.structure, self.alphabet, self.other = structure, letters(alphabet), other
        self.labels = None if labels is None else tuple(integers(labels, "labels").tolist())
        if len(self.alphabet) != structure.n_letters:
            raise ValueError(f"{structure.n_letters} letters are needed, got {len(self.alphabet)}")
        if len(structure.outputs) != (1 if labels is None else len(labels)):
            raise ValueError(f"{len(structure.outputs)} labels are needed, got {labels}")
        self.columns = {letter: a for a, letter in enumerate(self.alphabet)}
        self.start = nn.Parameter(torch.zeros(structure.n_states))
        self.stages = nn.ModuleList(StageUnits(stage, structure.n_letters) for stage in structure.stages)
        self.readout = LatticeGates(structure.readout)
        order = [c for stage in self._stages for c in stage.coordinates]
        self.register_buffer("place", torch.tensor(order, dtype=torch.int64).argsort(), persistent=False)
        self.register_buffer("outputs", torch.tensor(structure.outputs), persistent=False)

    @classmethod
    def from_blueprint(
        cls,
        blueprint: Blueprint,
        alphabet: Iterable[Hashable],
        other: bool = False,
        labels: Sequence[int] | None = None,
    ) -> CompiledCascade:
        """The cascade of a structure with its numbers."""
        cascade = cls(blueprint.structure, alphabet, other, labels)
        tables = zip(blueprint.reset, blueprint.set, strict=True)
        with torch.no_grad():
            cascade.start.copy_(torch.from_numpy(blueprint.start))
            for stage, before, after in zip(cascade._stages, blueprint.before, blueprint.after, strict=True):
                stage.fill([next(tables) for _ in stage.units], before, after)
        return cascade

    @property
    def n_states(self) -> int:
        """D, how many numbers a state has."""
        return self.structure.n_states

    @property
    def n_units(self) -> int:
        return sum(1 for _ in self.structure.units())

    @property
    def degree(self) -> int:
        """The largest degree of a unit, 1 if all are scalar."""
        return max((max(1, unit.degree) for unit in self.structure.units()), default=1)

    @property
    def n_gates(self) -> int:
        """Meets and joins of two wires."""
        return sum(len(gate) - 1 for gate in self.structure.gates())

    @property
    def width(self) -> int:
        """About how many numbers are computed together for one letter."""
        return max([1, *(stage.elements for stage in self._stages)]) + self.structure.n_wires

    def forward(
        self, letters: Tensor, state: Tensor | None = None, *, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Scores after every letter.

        Arguments:
            letters: [B, T] integers, the numbers of letters.
            state: [B, D] where this call starts; by default where words start.
            mask: [B, T] bool; at False the state and the score stay (padding).

        Returns: scores [B, T, C], and the state after the last letter [B, D] in float32, or float64 in float64.
        Raises: TypeError, ValueError where the parts do not fit together.
        """
        return self._run(letters, state, mask, self._scores)

    def features(
        self, letters: Tensor, state: Tensor | None = None, *, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What all units hold after every letter, [B, T, D], for layers on top; otherwise as `forward`."""
        return self._run(letters, state, mask, lambda rows: torch.cat(rows)[self.place])

    def advance(self, letters: Tensor, state: Tensor | None = None, *, mask: Tensor | None = None) -> Tensor:
        """The state after the last letter alone, [B, D], which `read` judges; otherwise as `forward`."""
        return self._run(letters, state, mask, lambda rows: rows[0][:0])[1]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """For the time of the context parameters do not change, so that short calls need not look at them again.

        On the CPU a call on few letters of a large vector unit spends most of its time on getting tables ready.
        """
        vectors = [module for module in self.modules() if isinstance(module, VectorUnit)]
        for vector in vectors:
            vector.freeze()
        try:
            yield
        finally:
            for vector in vectors:
                vector.ready = None

    def initial(self, batch: int) -> Tensor:
        """The state before the first letter, [B, D]."""
        return self.start.to(self._wide).expand(batch, -1)

    def read(self, state: Tensor) -> Tensor:
        """The scores [B, C] at a state [B, D]: of the empty word at the initial one. Errors as for `forward`."""
        self._check_state(state)
        rows = [state.to(self.start.dtype).T[stage.own] for stage in self._stages]
        return self._scores(rows or [state.new_zeros(0, len(state), dtype=self.start.dtype)]).T

    def decide(self, scores: Tensor) -> Tensor:
        """Scores [..., C] as bool [...], accepted or not; for a Moore machine as outputs [...]."""
        if self.labels is None:
            return scores[..., 0] > 0
        return torch.tensor(self.labels, device=scores.device)[scores.argmax(-1)]

    def encode(self, words: Iterable[Iterable[Hashable]]) -> tuple[Tensor, Tensor]:
        """Words as letters [B, T] and mask [B, T], False behind the end of shorter words.

        Raises: ValueError naming a symbol that is not in the alphabet and where it stands; TypeError for a string,
        which is one word.
        """
        if isinstance(words, str):
            raise TypeError(f"several words are needed, got the string {words!r}; put one word into a list: [word]")
        rows = [torch.from_numpy(encode(word, self.alphabet, self.columns, self.other)) for word in words]
        if not rows:
            empty = torch.zeros(0, 0, device=self.start.device)
            return empty.long(), empty.bool()
        padded_rows = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([len(row) for row in rows])
        mask = torch.arange(padded_rows.shape[1]) < lengths[:, None]
        return padded_rows.to(self.start.device), mask.to(self.start.device)

    @torch.no_grad()
    def judge(self, words: Iterable[Iterable[Hashable]]) -> Tensor:
        """For each of many words whether it is accepted, or the output after it, [B]; errors as for `encode`."""
        codes, mask = self.encode(words)
        return self.decide(self.read(self.advance(codes, mask=mask)))

    @torch.no_grad()
    def verdicts(self, word: Iterable[Hashable]) -> BoolArray:
        """Whether each beginning of a word is accepted (or the outputs), [T + 1]: the empty one first."""
        codes, _ = self.encode([word])
        state = self.initial(1)
        first = self.decide(self.read(state))
        return torch.cat([first, self.decide(self(codes, state)[0][0])]).cpu().numpy()

    def accepts(self, word: Iterable[Hashable]) -> bool:
        """Whether a word is accepted; errors as for `encode`.

        Raises: TypeError for a Moore machine, which gives outputs: see `judge`.
        """
        if self.labels is not None:
            raise TypeError("a machine with outputs accepts nothing; use judge([word]) or verdicts(word)")
        return bool(self.judge([word])[0])

    def save(self, path: str | Path) -> None:
        """Write one safetensors file that holds all of it; it appears whole or not at all.

        Raises: TypeError where letters are no strings, numbers, booleans or None, which JSON can hold; NaN is none, as
            the one that is loaded would not equal it.
        """
        kept = self.alphabet[:-1] if self.other and self.alphabet[-1] is OTHER else self.alphabet
        for letter in kept:
            if not (letter is None or (type(letter) in (str, int, float, bool) and letter == letter)):
                raise TypeError(f"letter {letter!r} cannot be saved: only strings, numbers, booleans and None can")
        facts = {
            "structure": self.structure.to_dict(),
            "alphabet": kept,
            "other": self.other,
            "labels": self.labels,
        }
        metadata = {"format": _FORMAT, "cascade": json.dumps(facts)}
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        write_bytes(Path(path), safetensors.torch.save(tensors, metadata))

    @classmethod
    def load(cls, path: str | Path) -> CompiledCascade:
        """The cascade of a file that `save` wrote, bit for bit, in the dtype that it had.

        Raises: FileNotFoundError; ValueError for a file that is damaged or something else.
        """
        if Path(path).is_dir():
            raise ValueError(f"{path} is a folder; a file that `save` wrote is needed")
        try:
            with safetensors.safe_open(str(path), framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
        except safetensors.SafetensorError as error:
            raise ValueError(f"{path} is no safetensors file, or damaged: {error}") from error
        if metadata.get("format") != _FORMAT:
            raise ValueError(f"{path} is a safetensors file, but holds no compiled cascade")
        try:
            facts: dict[str, Any] = json.loads(metadata["cascade"])
            alphabet, other = facts["alphabet"], facts["other"]
            if not isinstance(alphabet, list) or not isinstance(other, bool):
                raise ValueError("the alphabet must be a list, and `other` true or false")
            structure = Structure.from_dict(facts["structure"])
            if other and len(alphabet) < structure.n_letters:
                alphabet.append(OTHER)
            _check_tensors(tensors, structure)
            cascade = cls(structure, alphabet, other, facts["labels"])
            cascade.to(tensors["start"].dtype).load_state_dict(tensors)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{path} is damaged: {error}") from error
        return cascade

    def extra_repr(self) -> str:
        units = f"{self.n_units} unit{'s' * (self.n_units != 1)}"
        degree = f" of degree up to {self.degree}" if self.degree > 1 else ""
        return f"{units}{degree} in {len(self.stages)} stages, {self.n_gates} gates, {shown(self.alphabet)}"

    @property
    def _stages(self) -> list[StageUnits]:
        return cast("list[StageUnits]", list(self.stages))

    @property
    def _wide(self) -> torch.dtype:
        return torch.promote_types(self.start.dtype, torch.float32)

    def _checked(self, letters: Tensor, state: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """The letters of a call as int64, and its first state."""
        if not isinstance(letters, Tensor) or letters.is_floating_point() or letters.dtype == torch.bool:
            kind = letters.dtype if isinstance(letters, Tensor) else type(letters).__name__
            raise TypeError(f"letters must be a tensor of integers, got {kind}; encode(words) makes one")
        if letters.ndim != 2:
            raise ValueError(f"letters must be [B, T], got {tuple(letters.shape)}")
        if letters.device != self.start.device:
            raise ValueError(f"letters must be on {self.start.device} as the cascade is, got {letters.device}")
        letters = letters.long()  # the others cannot all be compared, nor be indices
        if letters.numel() and not (letters.min() >= 0 and letters.max() < len(self.alphabet)):
            found = f"{int(letters.min())} … {int(letters.max())}"
            raise ValueError(f"letters must be in 0 … {len(self.alphabet) - 1}, got {found}")
        if mask is not None:
            check_flags(mask, "mask", letters)
        if state is None:
            return letters, self.initial(len(letters))
        self._check_state(state, len(letters))
        return letters, state

    def _check_state(self, state: Tensor, batch: int | None = None) -> None:
        if not isinstance(state, Tensor):
            raise TypeError(f"state must be a tensor, got {type(state).__name__}; initial(batch) makes one")
        if state.device != self.start.device:
            raise ValueError(f"state must be on {self.start.device} as the cascade is, got {state.device}")
        fits = state.ndim == 2 and batch in (None, len(state)) and state.shape[1] == self.n_states
        if not fits or state.dtype != self._wide:
            wanted = f"{self._wide} [B, D] = ({'B' if batch is None else batch}, {self.n_states})"
            raise ValueError(f"state must be {wanted}, got {state.dtype} {tuple(state.shape)}")

    def _run(
        self,
        letters: Tensor,
        state: Tensor | None,
        mask: Tensor | None,
        read: Callable[[list[Tensor]], Tensor],
    ) -> tuple[Tensor, Tensor]:
        """What `read` makes of the states after every letter, [B, T, …], and the last states [B, D].

        Words and time are cut, so that what is computed together fits into a cache.
        """
        letters, state = self._checked(letters, state, mask)
        together = max(1, _BLOCK_ELEMENTS // self.width)
        found, last = [], []
        for first in range(0, max(1, len(letters)), together):
            words = slice(first, first + together)
            x, end = [], state[words]
            for here, keep in _cut(letters[words], None if mask is None else mask[words], together):
                rows, end = self._after(here, end, keep)
                y = read(rows)
                x.append(y.view(len(y), *here.shape))
            found.append(torch.cat(x, 2))
            last.append(end)
        return torch.cat(found, 1).permute(1, 2, 0), torch.cat(last)

    def _after(self, letters: Tensor, state: Tensor, mask: Tensor | None) -> tuple[list[Tensor], Tensor]:
        """The states after every letter, [coordinates, B, T] for every stage, and the last ones [B, D]."""
        wires, filled = new_wires(self.structure.n_wires, letters.numel(), self.start), 2
        rows, last = [], []
        for stage in self._stages:
            x, end, filled = stage(wires, filled, letters, state, mask)
            rows.append(x)
            last.append(end)
        if not rows:
            return [self.start.new_zeros(0, *letters.shape)], state
        return rows, torch.cat(last, 1)[:, self.place]

    def _scores(self, rows: list[Tensor]) -> Tensor:
        """The wires of the outputs, [C, M], from the states [coordinates, …] of every stage, M in each row."""
        count = math.prod(rows[0].shape[1:])
        wires, filled = new_wires(self.structure.n_readout_wires, count, self.start), 2
        for stage, x in zip(self._stages, rows, strict=False):
            filled = stage.after(x, wires, filled)
        self.readout(wires, filled)
        return wires[self.outputs]


def _cut(letters: Tensor, mask: Tensor | None, together: int) -> Iterator[tuple[Tensor, Tensor | None]]:
    """The letters [B, T] and their mask cut in time, about `together` letters at once."""
    time = max(1, together // max(1, len(letters)))
    for start in range(0, max(1, letters.shape[1]), time):
        here = slice(start, start + time)
        yield letters[:, here], None if mask is None else mask[:, here]


def _check_tensors(tensors: dict[str, Tensor], structure: Structure) -> None:
    """Refuse numbers of another kind or count than the structure has, before there is room made for them."""
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) != 1 or not dtypes <= {torch.float32, torch.float64, torch.bfloat16, torch.float16}:
        raise ValueError(
            f"all numbers must be of one dtype of those that cascades have, got {sorted(map(str, dtypes))}"
        )
    count = sum(tensor.numel() for tensor in tensors.values())
    if count != structure.n_parameters:
        raise ValueError(f"{structure.n_parameters:,} numbers are needed, got {count:,}")
