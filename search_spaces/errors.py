"""Errors a user can act on.

They live in the lowest layer so that every package can raise them; only the command line prints them.
"""

from collections.abc import Iterable
from difflib import get_close_matches

MOST_LISTED = 40
"""Of more names than that a message lists the closest alone."""


class UserError(Exception):
    """A wrong input: one sentence that names the value, and a hint that says what to do.

    The command line prints both and exits with `exit_code`; any other exception keeps its traceback.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UnknownNameError(UserError):
    """A name that is in no table; the hint gives the closest known names."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        close = get_close_matches(name, names, n=3, cutoff=0.5)
        few = len(names) <= MOST_LISTED
        listed = f"known: {', '.join(names if few else [*names[:MOST_LISTED], '...'])}"
        hint = f"did you mean {' or '.join(repr(c) for c in close)}?" if close else listed
        super().__init__(f"unknown {kind} {name!r}" + (f" ({listed})" if close and few else ""), hint)
        self.kind = kind
        self.name = name
