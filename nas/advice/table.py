"""Time by block: how much of it, for how much of the work, and what bounds it."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nas.advice.graph import PRODUCTS, bytes_of
from nas.advice.parts import Part
from nas.advice.placing import Operator

BOUND_FROM = 0.3
"""Share of a block's time that its products or its memory traffic need at the machine's ceiling, from which they are
called its bound. Below it is overhead: launches, conversions, shapes that do not suit the processor."""
MENTIONED = 0.05
"""Share of the time of a block's products from which their precision is named."""
_GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What the machine reaches at best in one runtime, with the threads of the deployment."""

    gmacs_per_s: Mapping[str, float]
    """Thousand million multiply-accumulates per second of a large product, by precision."""
    gb_per_s: float
    """Bytes read and written per second, in 1e9, of an operator that only moves a map; NaN where not measured."""
    profiler_ms: float = 0.0
    """Time that the runtime's profiler adds to each operator; negative where it tells less than one takes."""
    outside_ms: float = 0.0
    """Time of a call beside its operators: the runtime's own, and that of calling it from Python."""

    @classmethod
    def unknown(cls) -> "Ceiling":
        return cls({}, math.nan)

    def product_ms(self, macs: int, precision: str) -> float:
        """Time that the products need at least; NaN where the ceiling of their precision is not known."""
        rate = self.gmacs_per_s.get(precision, math.nan)
        return 1e3 * macs / (rate * _GIGA)

    def traffic_ms(self, moved_bytes: float) -> float:
        """Time that moving so many bytes needs at least."""
        return 1e3 * moved_bytes / (self.gb_per_s * _GIGA)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRow:
    """One block of a network in one deployment. What is not known is NaN (null in JSON)."""

    name: str
    kind: str
    ms: float
    share: float
    """Of the time of all blocks."""
    macs: int
    """Of one call."""
    share_macs: float
    excess: float
    """Share of the time over share of the MACs: above 1 a block takes more than its work."""
    bytes: float
    """Weights, and what its layers read and write, in the precision that ran."""
    gmacs_per_s: float
    ceiling_share: float
    """Rate over that of a large product in the same precision."""
    bound: str
    """`compute`, `memory`, `overhead`, or `unknown` without a ceiling."""
    precision: str
    """What its products really ran in, the slowest first: `int8`, `int8+bf16`; empty where the runtime does not say."""
    operators: int
    """That ran for it."""

    def to_json(self) -> dict[str, Any]:
        return {key: _number(value) for key, value in asdict(self).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTable:
    """All blocks of a network in one deployment."""

    rows: tuple[BlockRow, ...]
    operators: tuple[Operator, ...]
    p50_ms: float
    """Of undisturbed calls without a profiler, in the same sessions."""
    unassigned_ms: float
    """Of operators that belong to no block."""
    profiler_ms: float
    """Time that the profiler added to all operators, which is taken off; negative where it left some out."""
    outside_ms: float
    """Time of a call beside its operators, as a network of next to nothing has it."""

    @property
    def blocks_ms(self) -> float:
        return sum(row.ms for row in self.rows)

    @property
    def sum_over_p50(self) -> float:
        """Time of all blocks, and of a call beside its operators, over that of an undisturbed call."""
        return (self.blocks_ms + self.outside_ms) / self.p50_ms

    @property
    def profiler_overhead_pct(self) -> float:
        """Time that the profiler added, which is taken off, in per cent of a call without it."""
        return 100 * self.profiler_ms / self.p50_ms


def block_table(
    operators: Sequence[Operator],
    parts: Sequence[Part],
    ceiling: Ceiling,
    p50_ms: float,
    precision: str,
    profiler_ms: float = 0.0,
) -> BlockTable:
    """The table of a network.

    Args:
        operators: without what the profiler added to them.
        precision: the deployment's, for what the runtime does not tell.
        profiler_ms: what the profiler added to all of them.
    """
    by_part: list[list[Operator]] = [[] for _ in parts]
    unassigned_ms = 0.0
    for operator in operators:
        if operator.part is None:
            unassigned_ms += operator.ms
        else:
            by_part[operator.part].append(operator)
    total_ms = sum(o.ms for own in by_part for o in own)
    macs = sum(part.macs for part in parts)
    rows = tuple(_row(part, own, total_ms, macs, ceiling, precision) for part, own in zip(parts, by_part, strict=True))
    return BlockTable(
        rows=rows,
        operators=tuple(operators),
        p50_ms=p50_ms,
        unassigned_ms=unassigned_ms,
        profiler_ms=profiler_ms,
        outside_ms=ceiling.outside_ms,
    )


def ran_in(operator: Operator, fallback: str) -> str:
    """Precision of an operator, or the fallback where it is not known."""
    return operator.precision or fallback


def _row(
    part: Part, own: Sequence[Operator], total_ms: float, all_macs: int, ceiling: Ceiling, precision: str
) -> BlockRow:
    ms, macs = sum(o.ms for o in own), part.macs
    precisions = _precisions(own)
    named = {o.layer.name: ran_in(o, precision) for o in own if o.layer is not None and not o.converts}
    moved = sum(bytes_of(layer, named[layer.name]) for layer in part.layers if layer.name in named)
    product_ms = sum(ceiling.product_ms(o.macs, ran_in(o, precision)) for o in own if o.macs)
    share, share_macs = _ratio(ms, total_ms), _ratio(macs, all_macs)
    return BlockRow(
        name=part.name,
        kind=part.kind,
        ms=ms,
        share=share,
        macs=macs,
        share_macs=share_macs,
        excess=_ratio(share, share_macs),
        bytes=moved,
        gmacs_per_s=_ratio(macs, ms * 1e6),
        ceiling_share=_ratio(product_ms, ms),
        bound=bound_of(ms, product_ms, ceiling.traffic_ms(moved)),
        precision="+".join(precisions),
        operators=len(own),
    )


def bound_of(ms: float, product_ms: float, traffic_ms: float) -> str:
    """What bounds a block that takes `ms`, of which its products and its traffic need so much at the ceiling."""
    if not (math.isfinite(product_ms) and math.isfinite(traffic_ms)) or ms <= 0:
        return "unknown"
    if max(product_ms, traffic_ms) < BOUND_FROM * ms:
        return "overhead"
    return "compute" if product_ms >= traffic_ms else "memory"


def _precisions(own: Sequence[Operator]) -> list[str]:
    """Precisions of a block's products, the one that takes the longest first."""
    ms = Counter[str]()
    for operator in own:
        if operator.precision and operator.layer is not None and operator.layer.op in PRODUCTS:
            ms[operator.precision] += operator.ms  # type: ignore[assignment]
    total = sum(ms.values())
    return [name for name, taken in ms.most_common() if taken >= MENTIONED * total]


def _ratio(value: float, whole: float) -> float:
    return value / whole if whole else math.nan


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
