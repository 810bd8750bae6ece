"""The time of a training: where its limit ends it, and what is kept back for the last validation."""

import time

MOST_KEPT_BACK = 0.25
"""Of the limit, for a validation whose time is only guessed: small batches and a slow moment make it seem longer, and
a training that ends after a few steps is worth nothing."""


class Clock:
    """Seconds since a training began, and how long its steps and validations take.

    Args:
        limit_s: of the whole training; None: none.
        val_examples: that a validation looks at, for a guess of its time before there was one.
    """

    def __init__(self, limit_s: float | None, val_examples: int) -> None:
        self._started = time.perf_counter()
        self._limit_s, self._val_examples = limit_s, val_examples
        self.earlier_s = 0.0
        """Seconds of the sessions before this one."""
        self.longest_step_s = 0.0
        """The first step's as long as there is no other: it takes longer, since kernels are made for its shapes."""
        self._steps_s, self._examples = 0.0, 0
        self._validation_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds of all sessions."""
        return self.earlier_s + time.perf_counter() - self._started

    @property
    def reserve_s(self) -> float:
        """Seconds that the last validation will take: those of the longest so far, or a guess by the steps."""
        if self._limit_s is None:
            return 0.0
        if self._validation_s is not None:
            return 1.1 * self._validation_s
        if not self._examples:
            return 0.0
        # A forward pass is about a third of a training step; a half leaves room.
        guessed_s = 0.5 * self._val_examples * self._steps_s / self._examples
        return min(guessed_s, MOST_KEPT_BACK * self._limit_s)

    @property
    def is_out(self) -> bool:
        """True if another step and the last validation might not end within the limit."""
        return self._limit_s is not None and self.elapsed_s + self.longest_step_s + self.reserve_s > self._limit_s

    def stepped(self, seconds: float, examples: int) -> None:
        """A step on so many examples took so long.

        The first tells nothing of a validation. Where it takes half a second on 33 images, at a busy moment, one of
        4,500 seems to take half a minute.
        """
        if not self.longest_step_s:
            self.longest_step_s = seconds
            return
        self.longest_step_s = max(self.longest_step_s, seconds) if self._examples else seconds
        self._steps_s += seconds
        self._examples += examples

    def validated(self, seconds: float) -> None:
        """A validation took so long."""
        self._validation_s = max(self._validation_s or 0.0, seconds)

    def progress(self, share: float) -> float:
        """Share done in [0, 1]: `share` of the steps, or of the time limit where that ends first."""
        if self._limit_s is None:
            return share
        return min(1.0, max(share, (self.elapsed_s + self.reserve_s) / self._limit_s))
