"""What a derivation costs, in epochs of the baseline's own training: a figure that is the same on every machine.

Such an epoch is a forward and a backward pass of the baseline over all training examples, together three times its
multiply-accumulates for each.
"""

from collections.abc import Mapping, Sequence

from nas.networks.options import KEEP

Macs = Sequence[Mapping[str, int]]
"""For each unit the multiply-accumulates of what may stand in its place, `KEEP` among them."""
PASSES = 3
"""Price of a training step in forward passes."""


def library_price(macs: Macs, narrower: Sequence[Macs], examples: int, seen: int) -> float:
    """Epochs of the baseline's training that teaching every option costs.

    Args:
        macs: of the baseline and of all options for its own units.
        narrower: of narrower units, which are taught as well, and of their options.
        examples: in the training split.
        seen: examples that all options saw, repeated ones too.
    """
    whole = _whole(macs)
    taught = sum(count for named in macs for name, count in named.items() if name != KEEP)
    taught += sum(count for units in narrower for named in units for count in named.values())
    return seen / examples * (whole + PASSES * taught) / (PASSES * whole)


def student_price(whole: int, own: int, epochs: int, asked: int) -> float:
    """Epochs of the baseline's training that so many epochs of a network cost, where the baseline answers in `asked` of
    them; `whole` and `own`: multiply-accumulates of the baseline and of the network."""
    return (asked * whole + epochs * PASSES * own) / (PASSES * whole)


def _whole(macs: Macs) -> int:
    return sum(named[KEEP] for named in macs)
