"""What holds for a trained cascade at every length: bounds of its states, gradients of its states."""

from latchwork.verify.bounds import Interval, bounds
from latchwork.verify.decay import Decay, state_decay
from latchwork.verify.gradient import StateGradient, state_gradient

__all__ = ["Decay", "Interval", "StateGradient", "bounds", "state_decay", "state_gradient"]
