"""A cache that belongs to one value in one process."""

from typing import Any


class Memo(dict[Any, Any]):
    """Values that a frozen value has computed of itself; they are not sent to other processes along with it.

    As a field it wants `init=False`: then `dataclasses.replace` gives the new value a memo of its own.
    """

    def __reduce__(self) -> tuple[type["Memo"], tuple[()]]:
        return Memo, ()
