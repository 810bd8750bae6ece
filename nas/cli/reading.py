"""The options of `nas search` that say how data are read, see `nas.data_options`."""

from collections.abc import Callable
from typing import Any

import click

from nas.data_options import FITS, METRICS


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, in their order."""
    for option in (
        click.option(
            "--tokenizer",
            help="Texts: a tokenizer.json instead of one that is learnt from the training texts.",
        ),
        click.option(
            "--class-weights",
            is_flag=True,
            help="Let examples of rare classes weigh more in the loss, in proportion to how rare they are.",
        ),
        click.option(
            "--metric",
            type=click.Choice(METRICS),
            help="What classifiers are compared by: the share of right answers, its mean over the classes (images), or "
            "the mean F1 score of the classes (texts).  [default: accuracy; of texts of rare classes macro-f1]",
        ),
        click.option(
            "--max-resolution",
            type=click.IntRange(min=1),
            help="Largest height = width in pixels that images are kept at and networks are searched at.  "
            "[default: 224; detection and pose: 416]",
        ),
        click.option(
            "--fit",
            type=click.Choice(FITS),
            help="How classifiers see pictures that are not square: the middle, or all of it between grey bars.  "
            "[default: crop]",
        ),
        click.option(
            "--flip-anyway",
            is_flag=True,
            help="Mirror images of classes also where mirrored ones look like those of other classes.",
        ),
        click.option(
            "--flip/--no-flip",
            default=True,
            help="With --no-flip images are never mirrored: for text, signs, left and right.  [default: where the data "
            "allow it]",
        ),
    ):
        command = option(command)
    return command
