"""Two deployments of one network side by side, and the blocks that change places between them."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nas.advice.table import BlockRow, BlockTable
from nas.deployment import CPU
from nas.errors import UserError

CLEARLY = 1.2
"""One block takes longer than another by this factor at least, where it counts: less may be noise."""
_NAME = re.compile(r"(?P<runtime>[a-z]+)-(?P<precision>[a-z]+[0-9]+(?:-dynamic)?)(?:@(?P<device>\S+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """One block in two deployments."""

    name: str
    ms: float
    share: float
    rank: int
    """1 for the slowest block."""
    against_ms: float
    against_share: float
    against_rank: int
    flips: bool
    """True if it is clearly slower than some other block in one deployment, and clearly faster in the other."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compared(first: BlockTable, second: BlockTable) -> list[ComparedRow]:
    """The rows of two tables of the same blocks, in their order."""
    ours, theirs = _ranks(first.rows), _ranks(second.rows)
    return [
        ComparedRow(
            name=a.name,
            ms=a.ms,
            share=a.share,
            rank=ours[place],
            against_ms=b.ms,
            against_share=b.share,
            against_rank=theirs[place],
            flips=any(_flip(a, b, c, d) for c, d in zip(first.rows, second.rows, strict=True)),
        )
        for place, (a, b) in enumerate(zip(first.rows, second.rows, strict=True))
    ]


def parse_deployment(text: str) -> tuple[str, str, str]:
    """Runtime, precision and device that a name such as `openvino-int8` or `torch-fp16@cuda:0` tells.

    Raises `UserError` for a text of another form; whether there is such a deployment is asked elsewhere.
    """
    found = _NAME.fullmatch(text)
    if found is None:
        raise UserError(f"{text!r} is no deployment", "give a runtime and a precision: --against openvino-int8")
    return found["runtime"], found["precision"], found["device"] or CPU


def _flip(a: BlockRow, b: BlockRow, c: BlockRow, d: BlockRow) -> bool:
    """True if the block of `a` (in the other deployment `b`) and that of `c` and `d` clearly change places."""
    slower_then_faster = a.ms > CLEARLY * c.ms and b.ms * CLEARLY < d.ms
    return slower_then_faster or (a.ms * CLEARLY < c.ms and b.ms > CLEARLY * d.ms)


def _ranks(rows: Sequence[BlockRow]) -> list[int]:
    order = sorted(range(len(rows)), key=lambda place: -rows[place].ms)
    ranks = [0] * len(rows)
    for rank, place in enumerate(order, start=1):
        ranks[place] = rank
    return ranks
