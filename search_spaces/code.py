"""Whether code that a reference names may be imported in this process."""

import os

from search_spaces.errors import UserError

ALLOWED = "NAS_ALLOW_CODE"
"""Environment variable with references, separated by spaces. Where it is set, no others are imported; unset, as in a
program that imports `nas`, all are. The command line sets it for itself and the processes that it starts."""
ANY = "*"
"""Among them it stands for all."""


def require_allowed(reference: str, kind: str) -> None:
    """Raises `UserError` where the code of `reference`, `package.module:ATTRIBUTE`, must not be imported."""
    variable = os.environ.get(ALLOWED)
    allowed = None if variable is None else variable.split()
    if allowed is None or reference in allowed or ANY in allowed:
        return
    raise UserError(
        f"the {kind} {reference!r} is code that a file names and nobody on this machine did: it was not run",
        f"if you trust it, give the same command once with {ALLOWED}={reference} before it; that is remembered",
    )
