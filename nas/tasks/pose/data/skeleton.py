"""The points that all objects of a data set have: what they are called, how they hang together, how exact they are."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

COCO_SIGMAS: Mapping[str, float] = MappingProxyType(
    {
        "nose": 0.026, "left_eye": 0.025, "right_eye": 0.025, "left_ear": 0.035, "right_ear": 0.035,
        "left_shoulder": 0.079, "right_shoulder": 0.079, "left_elbow": 0.072, "right_elbow": 0.072,
        "left_wrist": 0.062, "right_wrist": 0.062, "left_hip": 0.107, "right_hip": 0.107, "left_knee": 0.087,
        "right_knee": 0.087, "left_ankle": 0.089, "right_ankle": 0.089,
    }
)  # fmt: skip
"""How far two annotators of COCO put a point apart, over the square root of a person's area
(https://cocodataset.org/#keypoints-eval)."""
ASSUMED_SIGMA = 0.05
"""The same for points about which nobody knows it."""
_SIDES = (("left", "right"), ("Left", "Right"), ("l_", "r_"))


@dataclass(frozen=True, slots=True)
class Skeleton:
    """K points of one kind of object.

    Raises:
        ValueError: lengths or indices that do not fit, or a sigma that is not positive.
    """

    names: tuple[str, ...]
    """K different names."""
    limbs: tuple[tuple[int, int], ...]
    """Pairs of points (from 0) to draw a line between."""
    sigmas: tuple[float, ...]
    """K positive numbers, see `COCO_SIGMAS`."""
    mirror: tuple[int, ...] | None
    """For each point the one that it becomes in a mirror image; None: not known."""
    assumed: bool = False
    """True if nobody gave the sigmas."""

    def __post_init__(self) -> None:
        count = len(self.names)
        if not count or len(set(self.names)) != count or len(self.sigmas) != count:
            raise ValueError(f"{count} points need as many different names and sigmas, got {len(self.sigmas)} sigmas")
        if not all(np.isfinite(sigma) and sigma > 0 for sigma in self.sigmas):
            raise ValueError(f"sigmas are positive numbers, got {self.sigmas}")
        if any(not 0 <= point < count for limb in self.limbs for point in limb):
            raise ValueError(f"limbs join points 0 to {count - 1}, got {self.limbs}")
        if self.mirror is not None and not is_mirror(self.mirror, count):
            raise ValueError(f"a mirror image swaps points in pairs, got {self.mirror}")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sigma_array(self) -> NDArray[np.float32]:
        """(K,) float32."""
        return np.array(self.sigmas, np.float32)

    def to_json(self) -> dict[str, Any]:
        """A document for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Skeleton":
        """Inverse of `to_json`; raises KeyError, TypeError or ValueError for anything else."""
        mirror = document["mirror"]
        return cls(
            names=tuple(map(str, document["names"])),
            limbs=tuple((int(a), int(b)) for a, b in document["limbs"]),
            sigmas=tuple(map(float, document["sigmas"])),
            mirror=None if mirror is None else tuple(map(int, mirror)),
            assumed=bool(document["assumed"]),
        )


def is_mirror(order: Sequence[int], count: int) -> bool:
    """Whether `order` swaps `count` points in pairs, or leaves them where they are."""
    return sorted(order) == list(range(count)) and all(order[other] == point for point, other in enumerate(order))


def mirror_of(names: Sequence[str]) -> tuple[int, ...] | None:
    """The point that each becomes in a mirror image, by `left` and `right` in the names.

    None where no name has a side, or a point lacks its other side: nobody can tell then.
    """
    positions = {name: point for point, name in enumerate(names)}
    found = []
    for point, name in enumerate(names):
        others = [_other(name, a, b) for left, right in _SIDES for a, b in ((left, right), (right, left))]
        sided = [other for other in others if other is not None]
        if sided and sided[0] not in positions:
            return None
        found.append(positions[sided[0]] if sided else point)
    return tuple(found) if found != list(range(len(names))) else None


def _other(name: str, side: str, opposite: str) -> str | None:
    if side.endswith("_"):  # `l_knee`, but not `nail_bed`
        return opposite + name[len(side) :] if name.startswith(side) else None
    return name.replace(side, opposite) if side in name else None


def sigmas_of(names: Sequence[str]) -> tuple[tuple[float, ...], bool]:
    """COCO's sigmas for its own names, and `ASSUMED_SIGMA` for others; whether any was assumed."""
    assumed = any(name not in COCO_SIGMAS for name in names)
    return tuple(COCO_SIGMAS.get(name, ASSUMED_SIGMA) for name in names), assumed
