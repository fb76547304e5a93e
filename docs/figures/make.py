"""Draw the pictures of the documentation: python docs/figures/make.py [FOLDER].

Writes SVGs beside this script, or into FOLDER; the same bytes every time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from latchwork import minmax_scan
from latchwork.automata import draw, from_regex
from latchwork.chart import BLUE, GREY, ORANGE, blank, to_svg

KEEP, CUT, SET = "#e8f0fe", "#eef1f4", "#fdeedd"
DARK = "#1c2733"


def step() -> str:
    """One step as a function of the state."""
    figure, panels = _panels(2, width=8.5, height=3.6)
    _step_panel(panels[0], r=0.7, s=0.3, title="s ≤ r")
    for low, high, colour, name in (
        (0.0, 0.3, SET, "set to s"),
        (0.3, 0.7, KEEP, "kept"),
        (0.7, 1.0, CUT, "cut to r"),
    ):
        panels[0].axvspan(low, high, color=colour, zorder=0)
        panels[0].text((low + high) / 2, 0.04, name, ha="center", color=DARK)
    _step_panel(panels[1], r=0.3, s=0.7, title="r < s")
    panels[1].axvspan(0, 1, color=SET, zorder=0)
    panels[1].text(0.5, 0.04, "set to s, whatever x was", ha="center", color=DARK)
    return to_svg(figure, "The new state against the old one: set below s, kept between s and r, cut above r")


def compose() -> str:
    """Two steps and the one step that they are."""
    figure, panels = _panels(3, width=8.5, height=3.1)
    first, second = (0.8, 0.2), (0.6, 0.4)
    both = min(first[0], second[0]), max(min(second[0], first[1]), second[1])
    names = ("first step", "second step", "both, as one step")
    for axes, (r, s), title in zip(panels, (first, second, both), names, strict=True):
        _step_panel(axes, r, s, title)
        axes.axvspan(s, r, color=KEEP, zorder=0)
    _step_panel(panels[2], *both, title=names[2])
    for axes, sign in ((panels[0], "then"), (panels[1], "=")):
        axes.annotate(sign, (1.13, 0.5), xycoords="axes fraction", ha="center", va="center", fontsize=12, color=DARK)
    return to_svg(figure, "A step with s 0.2 and r 0.8, one with s 0.4 and r 0.6, and both together as one step")


def scan() -> str:
    """Two groupings of the same eight steps."""
    figure, panels = _panels(2, width=8.5, height=3.0)
    groupings: tuple[tuple[str, list[tuple[int, int]]], ...] = (
        ("one after the other", [(0, i) for i in range(1, 8)]),
        ("in a tree", [(i, i + 1) for i in range(0, 8, 2)] + [(0, 3), (4, 7), (0, 7)]),
    )
    for axes, (title, spans) in zip(panels, groupings, strict=True):
        _bare(axes)
        axes.set_title(title, loc="left", fontsize=11, color=DARK)
        deep = len(spans) if title.startswith("one") else 3
        for t in range(8):
            axes.text(t, 0, f"{t + 1}", ha="center", va="center", fontsize=9, color=DARK)
        for first, last in spans:
            level = last if title.startswith("one") else (last - first + 1).bit_length() - 1
            height = level / deep * 3.2
            axes.plot([first - 0.32, last + 0.32], [height, height], color=BLUE, linewidth=5, solid_capstyle="round")
        axes.set_xlim(-0.8, 7.8)
        axes.set_ylim(-0.4, 3.6)
    return to_svg(figure, "Eight steps composed one after the other, and composed in a tree: the last one is the same")


def latch() -> str:
    """Reset, set and state of one unit over time."""
    r, s = _signals()
    x = minmax_scan(r[None, :, None], s[None, :, None])[0][0, :, 0]
    figure, axes = blank(height=3.4)
    _lines(axes, r, s, x)
    for t, level, text, place in (
        (6, 0.8, "s is above x:\nx becomes s", (7.4, 0.62)),
        (22, 0.8, "between s and r:\nx is kept, bit by bit", (16.5, 0.62)),
        (30, 0.25, "r is below x:\nx becomes r", (31.4, 0.36)),
    ):
        far = text.startswith("between")
        arrow = None if far else {"arrowstyle": "-", "color": GREY, "linewidth": 1}
        axes.annotate(text, (t, level), xytext=place, color=DARK, fontsize=9, va="center", arrowprops=arrow)
    axes.set_xlabel("step")
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=3)
    return to_svg(figure, "A unit over 48 steps: it is set, holds, is cut, holds, and is set again")


def gradient() -> str:
    """Where the gradient of the last state goes."""
    r, s = _signals()
    r, s, cut = r[:30].clone(), s[:30].clone(), 30
    put = s.clone().requires_grad_()
    x, last = minmax_scan(r[None, :, None], put[None, :, None])
    last.sum().backward()
    assert put.grad is not None
    through = _state_gradient(r, s)
    figure, panels = blank(height=4.4)
    panels.remove()
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
    _lines(top, r, s, x.detach()[0, :, 0])
    source = int(put.grad.argmax())
    top.annotate(
        "the last state is a copy\nof this s",
        (source, float(s[source])),
        xytext=(source + 1.6, 0.6),
        color=DARK,
        fontsize=9,
        va="center",
        arrowprops={"arrowstyle": "-", "color": GREY},
    )
    top.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.28), ncols=3)
    steps = range(cut)
    bottom.step(steps, through, where="mid", color=BLUE, linewidth=2)
    bottom.bar(steps, put.grad.tolist(), width=0.5, color=ORANGE, zorder=3)
    bottom.text(20, 0.82, "to the states on the way: exactly 1", color=BLUE, fontsize=9, ha="center")
    bottom.text(source - 0.6, 0.5, "to s", color=ORANGE, fontsize=9, ha="right")
    bottom.set_ylabel("gradient")
    bottom.set_ylim(0, 1.12)
    bottom.set_yticks([0, 1])
    bottom.set_xlabel("step")
    return to_svg(
        figure, "The gradient of the last state runs back at 1 to the step whose s was copied, and stops there"
    )


def forgetting() -> str:
    """What is left of a state, and of its gradient, after many steps."""
    figure, axes = blank(height=3.4)
    steps = [2 ** (i / 4) for i in range(4 * 20 + 1)]
    axes.plot(steps, [1.0] * len(steps), color=BLUE, linewidth=2.5)
    for gate, colour in ((0.9, GREY), (0.99, GREY), (0.999, GREY), (0.9999, GREY)):
        left = [gate**t for t in steps]
        axes.plot(steps, left, color=colour, linewidth=1.5)
        half = next(i for i, share in enumerate(left) if share < 0.5)
        axes.text(steps[half] * 1.12, 0.5, f"{gate}", color="#5b6b7b", fontsize=9, va="center")
    axes.text(2**20, 0.93, "a MinMax unit that holds", color=BLUE, ha="right", va="top", fontsize=10)
    axes.text(
        2**20, 0.5, "leaky and gated units, by\nthe share they keep a step", color="#5b6b7b", ha="right", fontsize=10
    )
    axes.set_xscale("log", base=2)
    axes.set_xlabel("steps")
    axes.set_ylabel("left of the state, and of its gradient")
    axes.set_ylim(0, 1.05)
    axes.set_xlim(1, 2**20)
    return to_svg(
        figure, "A leaky unit loses its state in tens to tens of thousands of steps; a MinMax unit never does"
    )


def _signals() -> tuple[torch.Tensor, torch.Tensor]:
    """Reset and set of the examples: s rises at 6 and 40, r falls at 30, otherwise both wander out of the way."""
    chance = torch.Generator().manual_seed(3)
    r = 1 - 0.12 * torch.rand(48, generator=chance)
    s = 0.12 * torch.rand(48, generator=chance)
    s[6], r[30], s[40] = 0.8, 0.25, 0.55
    return r, s


def _state_gradient(r: torch.Tensor, s: torch.Tensor) -> list[float]:
    """The gradient of the last state by every state before it."""
    x, through = torch.zeros(1), []
    states = []
    for t in range(len(r)):
        x = minmax_scan(r[None, t : t + 1, None], s[None, t : t + 1, None], x.reshape(1, 1))[1].reshape(1)
        x = x.detach().requires_grad_()
        states.append(x)
    for t in range(len(r)):
        tail = slice(t + 1, None)
        last = (
            minmax_scan(r[None, tail, None], s[None, tail, None], states[t][None])[1] if t + 1 < len(r) else states[t]
        )
        (share,) = torch.autograd.grad(last.sum(), states[t])
        through.append(float(share))
    return through


def _lines(axes: Any, r: torch.Tensor, s: torch.Tensor, x: torch.Tensor) -> None:
    steps = range(len(x))
    axes.plot(steps, r.tolist(), color=GREY, linewidth=1, marker=".", markersize=3, label="reset r")
    axes.plot(steps, s.tolist(), color=ORANGE, linewidth=1, marker=".", markersize=3, label="set s")
    axes.step(steps, x.tolist(), where="mid", color=BLUE, linewidth=2.5, label="state x")
    axes.set_ylim(0, 1.05)
    axes.set_yticks([0, 0.5, 1])
    axes.grid(visible=False)


def _step_panel(axes: Any, r: float, s: float, title: str) -> None:
    states = [i / 200 for i in range(201)]
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
    axes.plot(states, [max(min(r, x), s) for x in states], color=BLUE, linewidth=2.5)
    for value in (r, s):
        axes.axhline(value, color="#e3e8ee", linewidth=1, zorder=0.5)
    axes.set_yticks([s, r], ["s", "r"])
    axes.set_xticks([s, r], ["s", "r"])
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.set_title(title, loc="left", fontsize=11, color=DARK)
    axes.set_xlabel("state before")
    axes.set_ylabel("state after")


def _panels(count: int, width: float, height: float) -> tuple[Any, Any]:
    figure, axes = blank(width, height)
    axes.remove()
    panels = figure.subplots(1, count)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def automaton() -> str:
    """The state graph of an automaton."""
    return draw(from_regex("(a|b)*abb", "ab"))


def _bare(axes: Any) -> None:
    axes.spines[:].set_visible(False)
    axes.set_xticks([])
    axes.set_yticks([])


FIGURES: tuple[Callable[[], str], ...] = (step, compose, scan, latch, gradient, forgetting, automaton)


def main(folder: Path) -> None:
    """Write every figure to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure in FIGURES:
        (folder / f"{figure.__name__}.svg").write_text(figure(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
