"""Labels checked before time is spent on them."""

import numpy as np
from numpy.typing import NDArray

from nas.errors import UserError


def require_labels(labels: NDArray[np.int64], classes: int) -> None:
    """Raises `UserError` naming a label (n,) that is none of 0 to `classes` - 1."""
    for label in (int(labels.min()), int(labels.max())) if len(labels) else ():
        if not 0 <= label < classes:
            raise UserError(
                f"label {label} is out of range: there are {classes} classes",
                f"use labels 0 to {classes - 1}, or build for more classes",
            )
